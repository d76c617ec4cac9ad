#!/usr/bin/env python3
"""Compares training of an exported model with PyTorch's ways to train the same module.

    python3 bench/graph/run.py [--rounds 7] [--steps 4]

What is claimed and how it is measured: bench/graph/README.md. TORCHGPIPE=FOLDER of a checkout adds torchgpipe.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import contest  # noqa: E402
from contest import Contestant, Pair  # noqa: E402

SCHEDULES = ("1f1b", "zb-h1", "zbv")
PAIRS = [Pair("graph one rank", ("torch eager",)),
         Pair("own one rank", ("torch eager",)),
         Pair("own one rank", ("torch compile",)),
         *(Pair(f"{model} {schedule}", contest.TORCH_PIPELINES) for model in ("graph", "own") for schedule in SCHEDULES)]
OWN = "model.own_operations=true"
GPIPE_PAIRS = [Pair("strata GPipe", ("torchgpipe",)), Pair("graph 1f1b", ("torchgpipe",)), Pair("own 1f1b", ("torchgpipe",))]


def has_torchgpipe():
    command = [contest.PYTHON, "-c", f"import sys; sys.path.insert(0, {os.environ.get('TORCHGPIPE', '')!r}); import torchgpipe"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def contestants_in(folder):
    def contestants(options):
        def ours(kind, *settings):
            files = [f"{field}={folder}/{name}" for field, name in
                     (("model.file", "model.pt2"), ("data.inputs", "inputs.npy"), ("data.targets", "targets.npy"))]
            return Contestant(kind, lambda: contest.strata("bench/graph/recipe.yaml", [*files, *settings], options))

        return {
            "graph one rank": ours("one rank", "mesh.pp=1", "mesh.threads=2"),
            "own one rank": ours("one rank", "mesh.pp=1", "mesh.threads=2", OWN),
            **{f"{model} {schedule}": ours("pipeline", "mesh.pp=2", "mesh.threads=1", f"mesh.schedule={schedule}", *more)
               for model, more in (("graph", ()), ("own", (OWN,))) for schedule in SCHEDULES},
            **{name: Contestant("pipeline", lambda api=api: contest.torch_peer(HERE / "gpipe_peer.py", ("--api", api), options))
               for name, api in (("torchgpipe", "torchgpipe"), ("strata GPipe", "strata")) if has_torchgpipe()},
            **contest.torch_contestants(options, ("torch eager", "torch compile", *contest.TORCH_PIPELINES)),
        }
    return contestants


def main():
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([contest.PYTHON, str(HERE / "export.py"), folder], check=True)
        contest.run(HERE, __doc__, contestants_in(folder), contest.KINDS, PAIRS + (GPIPE_PAIRS if has_torchgpipe() else []))


if __name__ == "__main__":
    main()
