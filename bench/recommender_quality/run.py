#!/usr/bin/env python3
"""Trains recommenders at default settings, and the same nets in PyTorch at its defaults: AUC and log loss.

    .venv/bin/python bench/recommender_quality/run.py [--seeds 5] [--first-seed 11]

What is claimed and how it is measured: bench/recommender_quality/README.md. The environment's
Python has PyTorch.
"""

import argparse
import csv
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import contest  # noqa: E402
import peer  # noqa: E402
from resident import ROOT  # noqa: E402
from tasks import PROGRAM, SETS, in_order  # noqa: E402

MODELS = {"dlrm": {"kind": "dlrm", "bottom": [32, 8], "top": [64, 32]},
          "dcn": {"kind": "dcn", "bottom": [], "top": [64, 32]},
          "deep_wide": {"kind": "deep_wide", "bottom": [16, 64], "top": [64, 32]}}
PEERS = {"PyTorch": False, "PyTorch, rows as Strata's": True}  # whether rows begin and learn as Strata's


def recipe(task, model):
    """Nothing is said but what is learned by which net: every other field has its default."""
    ids = "\n".join(f"    - {{name: {column}, width: {task.width}, ids: vocabulary"
                    + (", pool: mean, separator: ' '" if column in task.several else "") + "}" for column in task.ids)
    return f"""\
model: {{kind: {model['kind']}, bottom: {model['bottom']}, top: {model['top']}}}
data:
  train: train.csv
  validation: test.csv
  numeric: [{', '.join(task.numbers)}]
  categorical:
{ids}
  shuffle: false
train: {{epochs: 1, mini_batch: {task.mini_batch}, validation_samples: 0}}
mesh: {{threads: 1}}
"""


def strata(task, model, rows, test, seed, settings):
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file, samples in (("train.csv", rows), ("test.csv", test)):
            with (folder / file).open("w", newline="") as out:
                writer = csv.DictWriter(out, ["label", *task.numbers, *task.ids], extrasaction="ignore")
                writer.writeheader()
                writer.writerows(samples)
        (folder / "recipe.yaml").write_text(recipe(task, model))
        command = [str(PROGRAM), "train", "recipe.yaml"]
        for setting in [f"train.seed={seed}", *settings]:
            command += ["--set", setting]
        run = subprocess.run(command, capture_output=True, text=True, cwd=folder)
    if run.returncode != 0:
        sys.exit(run.stderr)
    line = next(line for line in run.stdout.splitlines() if line.startswith("loss ") and "auc" in line)
    loss, auc = re.search(r"validation ([\d.]+) nats.* auc ([\d.]+)", line).groups()
    return {"auc": float(auc), "log_loss": float(loss)}


def measured(options):
    results = []
    for set_name in options.sets:
        for seed in range(options.first_seed, options.first_seed + options.seeds):
            with tempfile.TemporaryDirectory() as folder:
                task = SETS[set_name](seed, Path(folder))
            rows = in_order(task, seed)
            log = peer.Log(task, rows, task.test)
            for kind in options.kinds:
                model = MODELS[kind]
                found = {"Strata": strata(task, model, rows, task.test, seed, options.set)}
                for name, strata_rows in PEERS.items():
                    found[name] = peer.train(task, model, log, seed, strata_rows)
                results += [{"set": set_name, "kind": kind, "seed": seed, "system": system, **quality}
                            for system, quality in found.items()]
                print(f"{set_name}, {kind}, seed {seed}: " + ", ".join(
                    f"{system} {quality['auc']:.4f} {quality['log_loss']:.4f}" for system, quality in found.items()),
                    file=sys.stderr)
    return results


def table(results, options):
    systems = ["Strata", *PEERS]
    lines = ["| samples | net | " + " | ".join(f"{system}: AUC, log loss" for system in systems) + " |",
             "| --- | --- |" + " --- |" * len(systems)]
    for set_name in options.sets:
        for kind in options.kinds:
            cells = []
            for system in systems:
                of = [row for row in results if (row["set"], row["kind"], row["system"]) == (set_name, kind, system)]
                aucs = [row["auc"] for row in of]
                losses = [row["log_loss"] for row in of]
                cells.append(f"{statistics.mean(aucs):.4f} ({min(aucs):.4f} - {max(aucs):.4f}), "
                             f"{statistics.mean(losses):.4f}")
            lines.append(f"| {set_name} | {kind} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=11, help="seeds 1 to 10 served to choose the defaults")
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS))
    parser.add_argument("--kinds", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--set", action="append", default=[], metavar="FIELD=VALUE",
                        help="of Strata's recipe: a setting other than the default")
    options = parser.parse_args()
    if not PROGRAM.exists():
        sys.exit(f"run: no {PROGRAM}; run `make build` first")
    results = measured(options)
    print(table(results, options))
    contest.write(HERE, options, {"trainings": results}, [])


if __name__ == "__main__":
    main()
