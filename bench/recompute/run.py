#!/usr/bin/env python3
"""Compares what recompute costs and frees, in Strata and in PyTorch: rounds, medians, a table and a JSON file.

    python3 bench/recompute/run.py [--rounds 7] [--steps 4]

What is claimed and how it is measured: bench/recompute/README.md.
"""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import contest  # noqa: E402
from contest import Contestant, Kind, Pair  # noqa: E402

MICRO_BATCH = 32  # the whole mini-batch, so that activations are most of the memory
MODES = ("cheap", "products", "attention", "full")
BUDGETS = ("700MiB", "480MiB")
PEERS = ("nothing", "operations", "blocks")
PAIRS = [Pair("strata cheap", ("torch nothing",)), Pair("strata cheap", ("torch operations",)),
         Pair("strata attention", ("torch blocks",)), Pair("strata full", ("torch blocks",)),
         Pair("strata attention", ("strata full",)),
         *(Pair(f"strata auto in {budget}", ("strata full",)) for budget in BUDGETS)]


def contestants(options):
    def ours(*settings):
        return Contestant("one rank", lambda: contest.strata(
            "recipes/bench.yaml", ("mesh.pp=1", "mesh.threads=2", f"train.micro_batch={MICRO_BATCH}", *settings), options))

    def peer(recompute):
        arguments = ("eager", "--threads", "2", "--micro-batch", str(MICRO_BATCH), "--recompute", recompute)
        return Contestant("one rank", lambda: contest.torch_peer(
            contest.ROOT / "bench/pipeline/torch_peer.py", arguments, options))

    return {**{f"strata {mode}": ours(f"memory.recompute={mode}") for mode in MODES},
            **{f"strata auto in {budget}": ours("memory.recompute=auto", f"memory.device={budget}",
                                                "memory.weights=device", "memory.states=device") for budget in BUDGETS},
            **{f"torch {recompute}": peer(recompute) for recompute in PEERS}}


if __name__ == "__main__":
    contest.run(HERE, __doc__, contestants, {"one rank": Kind(processes=1, threads=2)}, PAIRS)
