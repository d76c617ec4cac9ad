#!/usr/bin/env python3
"""Compares Strata with PyTorch on one machine: interleaved rounds, medians, a table and a JSON file.

    python3 bench/pipeline/run.py [--rounds 7] [--steps 4]

What is claimed and how it is measured: bench/pipeline/README.md.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import contest  # noqa: E402
from contest import Contestant, Pair  # noqa: E402

OURS = ("1f1b", "zb-h1", "zb", "zbv")
PAIRS = [*(Pair(f"strata {schedule}", contest.TORCH_PIPELINES) for schedule in OURS),
         Pair("strata one rank", ("torch eager",))]


def contestants(options):
    def ours(kind, *settings):
        return Contestant(kind, lambda: contest.strata("recipes/bench.yaml", settings, options))

    return {
        **{f"strata {schedule}": ours("pipeline", "mesh.pp=2", f"mesh.schedule={schedule}", "mesh.threads=1") for schedule in OURS},
        "strata one rank": ours("one rank", "mesh.pp=1", "mesh.threads=2"),
        **contest.torch_contestants(options, (*contest.TORCH_PIPELINES, "torch eager")),
    }


def first_step_seconds():
    """Wall time from starting the program to its first line of metrics: one finished step."""
    with tempfile.TemporaryDirectory() as folder:
        metrics = Path(folder) / "metrics.jsonl"
        begin = time.perf_counter()
        process = subprocess.Popen(
            [contest.STRATA, "train", "recipes/tiny.yaml", "--metrics", str(metrics)],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=contest.ROOT)
        while not (metrics.exists() and "\n" in metrics.read_text()):
            if process.poll() not in (None, 0):
                sys.exit("run: strata train recipes/tiny.yaml failed")
            time.sleep(0.002)
        seconds = time.perf_counter() - begin
        process.wait()
    return seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    contest.add_options(parser)
    contest.add_only(parser)
    options = contest.parse(parser)
    chosen = contest.chosen(options, contestants(options))
    result, rounds = contest.compare(options, chosen, contest.KINDS, contest.remaining(PAIRS, chosen),
                                     {"first_step_seconds": first_step_seconds})
    first = contest.summary([r["first_step_seconds"] for r in rounds])
    print(f"command to first finished step (recipes/tiny.yaml): {first['median']:.2f} s "
          f"({first['min']:.2f} – {first['max']:.2f})")
    contest.write(HERE, options, {**result, "first_step_seconds": first}, rounds)


if __name__ == "__main__":
    main()
