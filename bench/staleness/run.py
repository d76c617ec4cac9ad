#!/usr/bin/env python3
"""Trains UCI Adult as PERSIA's own test does, with rows and nets of several ages: what staleness costs.

    python3 bench/staleness/run.py [--seeds 5] [--plot FILE.svg]

What is claimed and how it is measured: bench/staleness/README.md.
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import contest  # noqa: E402
from resident import ROOT  # noqa: E402

PROGRAM = ROOT / "build/release/strata"
RECIPE = ROOT / "recipes/adult.yaml"

# Name, dense learning rate, what differs. A delay of n updates is a staleness of n + 1.
ROWS = (
    ("synchronous", 0.1, ["embedding.staleness=1"]),
    ("hybrid, 10 late", 0.1, ["embedding.staleness=11"]),
    ("hybrid, 30 late", 0.1, ["embedding.staleness=31"]),
    ("hybrid, 60 late", 0.1, ["embedding.staleness=61"]),
    ("synchronous", 0.02, ["embedding.staleness=1"]),
    ("hybrid, 10 late", 0.02, ["embedding.staleness=11"]),
    ("hybrid, 20 late", 0.02, ["embedding.staleness=21"]),
    ("asynchronous, 10 late", 0.02, ["embedding.staleness=11", "embedding.mode=asynchronous"]),
    ("asynchronous, 20 late", 0.02, ["embedding.staleness=21", "embedding.mode=asynchronous"]),
)


def auc(rate, settings, seed, epochs):
    """Of the test samples, after one pass; None where training diverged."""
    with tempfile.TemporaryDirectory() as folder:
        metrics = Path(folder) / "metrics.jsonl"
        command = [PROGRAM, "train", RECIPE, "--metrics", metrics]
        for setting in [*settings, f"train.optimizer.learning_rate={rate}", f"train.seed={seed}",
                        f"train.epochs={epochs}"]:
            command += ["--set", setting]
        run = subprocess.run([str(part) for part in command], capture_output=True, text=True, cwd=ROOT)
        if run.returncode == 2 and "no longer finite" in run.stderr:
            return None
        if run.returncode != 0:
            sys.exit(run.stderr)
        line = next(line for line in run.stdout.splitlines() if line.startswith("loss "))
        return float(line.split("auc ")[1].split(",")[0])


def table(results):
    lines = ["| training | dense learning rate | test AUC, mean | spread | less than synchronous |",
             "| --- | --- | --- | --- | --- |"]
    base = {row["rate"]: row["mean"] for row in results if row["name"] == "synchronous"}
    for row in results:
        if row["mean"] is None:
            lines.append(f"| {row['name']} | {row['rate']} | diverges | | |")
            continue
        lines.append(f"| {row['name']} | {row['rate']} | {row['mean']:.4f} | {min(row['aucs']):.4f} - "
                     f"{max(row['aucs']):.4f} | {base[row['rate']] - row['mean']:+.4f} |")
    return "\n".join(lines)


def plot(results):
    """AUC of each training as a dot a seed and a bar at the mean."""
    shown = [row for row in results if row["mean"] is not None]
    low = min(min(row["aucs"]) for row in shown) - 0.001
    high = max(max(row["aucs"]) for row in shown) + 0.001
    left, width, height, line = 210, 640, 40 + 26 * len(shown), 26

    def x(value):
        return left + (value - low) / (high - low) * (width - left - 20)

    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
             'font-family="sans-serif" font-size="12">',
             f'<rect width="{width}" height="{height}" fill="white"/>']
    for tick in range(int(low * 1000) + 1, int(high * 1000) + 1, 2):
        at = x(tick / 1000)
        parts.append(f'<line x1="{at:.1f}" y1="8" x2="{at:.1f}" y2="{height - 24}" stroke="#ddd"/>'
                     f'<text x="{at:.1f}" y="{height - 8}" text-anchor="middle">{tick / 1000:.3f}</text>')
    for i, row in enumerate(shown):
        y = 22 + i * line
        colour = "#c0392b" if row["name"].startswith("asyn") else "#2c5f8a"
        parts.append(f'<text x="{left - 10}" y="{y + 4}" text-anchor="end">{row["name"]}, {row["rate"]}</text>')
        parts += [f'<circle cx="{x(value):.1f}" cy="{y}" r="3" fill="{colour}" fill-opacity="0.5"/>'
                  for value in row["aucs"]]
        parts.append(f'<line x1="{x(row["mean"]):.1f}" y1="{y - 8}" x2="{x(row["mean"]):.1f}" y2="{y + 8}" '
                     f'stroke="{colour}" stroke-width="2"/>')
    return "\n".join([*parts, "</svg>", ""])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--plot", type=Path)
    options = parser.parse_args()
    if not PROGRAM.exists():
        sys.exit(f"run: no {PROGRAM}; run `make build` first")
    if not (ROOT / "data/adult/train.csv").exists():
        sys.exit("run: no data; run tools/fetch_adult.sh first")
    results = []
    for name, rate, settings in ROWS:
        aucs = [auc(rate, settings, seed, options.epochs) for seed in range(1, options.seeds + 1)]
        finite = [value for value in aucs if value is not None]
        mean = statistics.mean(finite) if len(finite) == len(aucs) else None
        results.append({"name": name, "rate": rate, "settings": settings, "aucs": finite, "mean": mean})
        print(f"{name}, {rate}: {aucs}", file=sys.stderr)
    print(table(results))
    if options.plot:
        options.plot.write_text(plot(results))
    contest.write(HERE, options, {"trainings": results}, [])


if __name__ == "__main__":
    main()
