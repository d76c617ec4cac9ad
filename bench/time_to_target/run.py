#!/usr/bin/env python3
"""Measures the time to a target of Strata and of PyTorch with the same model, interleaved.

    python3 bench/time_to_target/run.py [--runs 5] [--tasks gpt,fashion,adult] [--only NAME ...] [--out FOLDER]

What is claimed and how it is measured: bench/time_to_target/README.md. Needs data/kjv.txt (`make demo`), data/fashion (`make fashion`)
and data/adult (`make adult`). Prints what `strata compare` says of each pair of sets.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from contest import PYTHON, STRATA  # noqa: E402
from resident import ROOT  # noqa: E402

FASHION = ["recipes/fashion.yaml", "--set", "train.validate_every=50", "--set", "train.validation_samples=2000"]
ADULT = ["recipes/adult-dcn.yaml", "--set", "model.dropout=0", "--set", "mesh.threads=2", "--set", "train.validate_every=50"]
PEERS = {"torch eager": [], "torch compile": ["--compile"], "torch stages": ["--stages", "2"]}
TASKS = {  # the target, Strata's sets of arguments
    "gpt": ("val_loss<=2.1", {"strata": ["bench/time_to_target/gpt.yaml"]}),
    "fashion": ("accuracy>=0.87", {"strata": FASHION, "strata own": [*FASHION, "--set", "model.own_operations=true"]}),
    "adult": ("auc>=0.926", {"strata": ADULT}),
}


def quiet(command):
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 5):  # 5: missed
        sys.exit(f"run: {' '.join(command)}\n{done.stderr}")


def measure(task, runs, only, folder):
    target, ours = TASKS[task]
    contestants = {name: [STRATA, "train", *arguments, "--target", target] for name, arguments in ours.items()}
    contestants |= {name: [PYTHON, str(HERE / "torch_peer.py"), task, "--target", target, *options] for name, options in PEERS.items()}
    contestants = {name: command for name, command in contestants.items() if not only or name in only}
    for seed in range(1, runs + 1):
        # Every other round runs in reverse order, so that no contestant always follows another.
        for name in sorted(contestants, reverse=seed % 2 == 0):
            path = folder / task / name.replace(" ", "-")
            path.mkdir(parents=True, exist_ok=True)
            file = path / f"{seed}.json"
            ends = ["--set", f"train.seed={seed}", "--run-json", str(file)] if name.startswith("strata") else ["--seed", str(seed), "--out", str(file)]
            quiet([*contestants[name], *ends])
            print(f"{task} {target}  run {seed}/{runs}  {name}", file=sys.stderr, flush=True)
    for name in filter(contestants.__contains__, ours):
        for peer in filter(contestants.__contains__, PEERS):
            command = [STRATA, "compare", name.replace(" ", "-"), peer.replace(" ", "-")]
            print(subprocess.run(command, cwd=folder / task, capture_output=True, text=True, check=True).stdout, flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--tasks", default=",".join(TASKS))
    parser.add_argument("--only", nargs="+", metavar="NAME", help="contestants")
    parser.add_argument("--out", help="folder for the files of the runs")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = scratch + "/inductor"  # the first run of a task compiles for the others
        for task in options.tasks.split(","):
            measure(task, options.runs, options.only, Path(options.out or scratch).resolve())


if __name__ == "__main__":
    main()
