#!/usr/bin/env python3
"""Compares bf16 training with fp32 and with PyTorch's bf16: interleaved rounds, medians, a table.

    python3 bench/precision/run.py [--rounds 7] [--steps 4]

What is claimed and how it is measured: bench/precision/README.md.
"""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import contest  # noqa: E402
from contest import Contestant, Kind, Pair  # noqa: E402

PEER = HERE.parent / "pipeline/torch_peer.py"
KINDS = {"one rank": Kind(processes=1, threads=2)}
PAIRS = [Pair("strata bf16", ("strata fp32",)),
         Pair("strata bf16", ("torch autocast", "torch bf16")),
         Pair("strata fp32", ("torch fp32",))]


def contestants(options):
    def ours(precision):
        settings = ("mesh.pp=1", "mesh.threads=2", f"train.precision={precision}")
        return Contestant("one rank",
                          lambda: contest.strata("recipes/bench.yaml", settings, options))

    def peer(precision):
        arguments = ("eager", "--threads", "2", "--precision", precision)
        return Contestant("one rank", lambda: contest.torch_peer(PEER, arguments, options))

    return {"strata fp32": ours("fp32"), "strata bf16": ours("bf16"), "torch fp32": peer("fp32"),
            "torch autocast": peer("autocast"), "torch bf16": peer("bf16")}


if __name__ == "__main__":
    contest.run(HERE, __doc__, contestants, KINDS, PAIRS)
