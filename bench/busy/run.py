#!/usr/bin/env python3
"""Compares Strata with PyTorch while another process uses a core: interleaved rounds, medians.

    python3 bench/busy/run.py [--rounds 5] [--steps 2] [--others 1]

What is claimed and how it is measured: bench/busy/README.md.
"""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import contest  # noqa: E402
from contest import Contestant, Kind, Pair  # noqa: E402

PEER = HERE.parent / "pipeline/torch_peer.py"
KINDS = {"one rank": Kind(processes=1, threads=2)}
PAIRS = [Pair("strata one rank", ("torch eager",)), Pair("strata 1f1b", ("torch eager",))]


def contestants(options):
    def in_parallel(run):
        def measured():
            with contest.busy_processes(options.others):
                return run()
        return Contestant("one rank", measured)

    def ours(*settings):
        return in_parallel(lambda: contest.strata("recipes/bench.yaml", settings, options))

    return {"strata one rank": ours("mesh.pp=1", "mesh.threads=2"),
            "strata 1f1b": ours("mesh.pp=2", "mesh.schedule=1f1b", "mesh.threads=1"),
            "torch eager": in_parallel(
                lambda: contest.torch_peer(PEER, ("eager", "--threads", "2"), options))}


def add(parser):
    parser.add_argument("--others", type=int, default=1, help="busy processes in parallel")


if __name__ == "__main__":
    contest.run(HERE, __doc__, contestants, KINDS, PAIRS, add)
