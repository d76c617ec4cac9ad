#!/usr/bin/env python3
"""Trains on clicks of a teacher that is known: which share of the best AUC late rows reach.

    python3 bench/staleness/teacher.py [--seeds 3] [--plot FILE.svg]

What is claimed and how it is measured: bench/staleness/README.md.
"""

import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import contest  # noqa: E402
from resident import ROOT  # noqa: E402

PROGRAM = os.environ.get("STRATA", str(ROOT / "build/release/strata"))
RECIPE = str(ROOT / "bench/staleness/teacher.yaml")

# A delay of n updates is a staleness of n + 1.
TRAININGS = (
    ("synchronous", ["embedding.staleness=1"]),
    ("hybrid, 10 late", ["embedding.staleness=11"]),
    ("asynchronous, 10 late", ["embedding.staleness=11", "embedding.mode=asynchronous"]),
)


def run(*arguments):
    done = subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, cwd=ROOT)
    if done.returncode != 0:
        sys.exit(done.stderr)
    return done.stdout


def best_auc(seed):
    """Of the validation samples, expected over their labels."""
    with tempfile.TemporaryDirectory() as folder:
        out = run("convert", RECIPE, f"{folder}/validation.strata", "--validation", "--set",
                  f"data.synthetic.seed={seed}")
    return float(re.search(r"best AUC +([\d.]+)", out)[1])


def auc(settings, seed):
    sets = [part for setting in [*settings, f"data.synthetic.seed={seed}", f"train.seed={seed}"]
            for part in ("--set", setting)]
    return float(re.search(r"\bauc ([\d.]+)", run("train", RECIPE, *sets))[1])


def table(results):
    lines = ["| training | AUC, mean | share of the best AUC, mean | spread | less than synchronous |",
             "| --- | --- | --- | --- | --- |"]
    base = results[0]["shares"]
    for row in results:
        less = statistics.mean(one - share for one, share in zip(base, row["shares"]))
        lines.append(f"| {row['name']} | {statistics.mean(row['aucs']):.4f} | "
                     f"{100 * statistics.mean(row['shares']):.2f} % | {100 * min(row['shares']):.2f} - "
                     f"{100 * max(row['shares']):.2f} % | {100 * less:+.2f} % |")
    return "\n".join(lines)


def plot(results):
    """Share of the best AUC: a dot a seed and a bar at the mean, with the limit of half a percent."""
    shares = [share for row in results for share in row["shares"]]
    least = statistics.mean(results[0]["shares"]) - 0.005  # what is claimed
    low, high = min(*shares, least) - 0.001, max(shares) + 0.001
    left, width, height = 170, 640, 40 + 26 * len(results)

    def x(value):
        return left + (value - low) / (high - low) * (width - left - 30)

    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
             'font-family="sans-serif" font-size="12">',
             f'<rect width="{width}" height="{height}" fill="white"/>']
    step = 0.002 if high - low < 0.02 else 0.01
    for tick in range(int(low / step) + 1, int(high / step) + 1):
        at = x(tick * step)
        parts.append(f'<line x1="{at:.1f}" y1="8" x2="{at:.1f}" y2="{height - 24}" stroke="#ddd"/>'
                     f'<text x="{at:.1f}" y="{height - 8}" text-anchor="middle">{100 * tick * step:.1f} %</text>')
    parts.append(f'<line x1="{x(least):.1f}" y1="8" x2="{x(least):.1f}" y2="{height - 24}" stroke="#555" '
                 'stroke-dasharray="4 3"/>')
    for i, row in enumerate(results):
        y, mean = 22 + 26 * i, statistics.mean(row["shares"])
        colour = "#c0392b" if row["name"].startswith("asyn") else "#2c5f8a"
        parts.append(f'<text x="{left - 10}" y="{y + 4}" text-anchor="end">{row["name"]}</text>')
        parts += [f'<circle cx="{x(value):.1f}" cy="{y}" r="3" fill="{colour}" fill-opacity="0.5"/>'
                  for value in row["shares"]]
        parts.append(f'<line x1="{x(mean):.1f}" y1="{y - 8}" x2="{x(mean):.1f}" y2="{y + 8}" stroke="{colour}" '
                     'stroke-width="2"/>')
    return "\n".join([*parts, "</svg>", ""])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--plot", type=Path)
    options = parser.parse_args()
    if not Path(PROGRAM).exists():
        sys.exit(f"run: no {PROGRAM}; run `make build` first")
    seeds = range(1, options.seeds + 1)
    best = {seed: best_auc(seed) for seed in seeds}
    print(f"best AUC: {best}", file=sys.stderr)
    results = []
    for name, settings in TRAININGS:
        aucs = [auc(settings, seed) for seed in seeds]
        results.append({"name": name, "settings": settings, "best": list(best.values()), "aucs": aucs,
                        "shares": [value / best[seed] for value, seed in zip(aucs, seeds)]})
        print(f"{name}: {aucs}", file=sys.stderr)
    print(table(results))
    if options.plot:
        options.plot.write_text(plot(results))
    contest.write(HERE, options, {"trainings": results}, [])


if __name__ == "__main__":
    main()
