#!/usr/bin/env python3
"""Measures samples that ranks divide (mesh.cp): memory of a rank, speed, and what an emulated link makes of it.

    python3 bench/long_sequences/run.py [--rounds 3] [--steps 3] [--links 100 1000]

What is claimed and how it is measured: bench/long_sequences/README.md.
"""

import argparse
import statistics
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import strata_runs  # noqa: E402

RECIPE = HERE / "recipe.yaml"
TOKENS = 1024  # of a rank, where memory is measured
LENGTH = 4096  # of a sample, where speed is measured
SPEEDS = {  # settings of the same samples
    "one rank": {},
    "one rank, blocks of 512": {"mesh__cp_block": 512},
    "ring, 2 ranks": {"mesh__cp": 2},
    "ring, 2 ranks, blocks of 512": {"mesh__cp": 2, "mesh__cp_block": 512},
    "heads exchanged, 2 ranks": {"mesh__cp": 2, "mesh__cp_exchange": "ulysses"},
    "tp 2 with sequence parallelism": {"mesh__tp": 2, "mesh__sequence_parallel": "true"},
}


def train(fields, steps, processes=1):
    """The metrics of the steps after the first, which is slower."""
    return strata_runs.train(RECIPE, {"train__steps": steps + 1, **fields}, processes)[1:]


def plan(fields):
    return strata_runs.plan(RECIPE, fields)


def measure_memory(exchange):
    """The same tokens a rank on more ranks: longer samples."""
    rows = []
    for ranks in (1, 2, 4, 8):
        fields = {"model__context": TOKENS * ranks, "mesh__cp": ranks}
        if ranks > 1:
            fields["mesh__cp_exchange"] = exchange
        peak = max(train(fields, 1)[-1]["peak_bytes"])
        planned = max(rank["memory"]["peak_bytes"] for rank in plan(fields)["ranks"])
        rows.append({"exchange": exchange, "ranks": ranks, "tokens": TOKENS * ranks, "peak_bytes": peak, "planned_bytes": planned})
    return rows


def print_memory(rows):
    print("\n| exchange | ranks | tokens of a sample | peak of a rank | planned | × one rank |\n| --- | --- | --- | --- | --- | --- |")
    for row in rows:
        one = next(other["peak_bytes"] for other in rows if other["exchange"] == row["exchange"])
        print(f"| {row['exchange']} | {row['ranks']} | {row['tokens']} | {row['peak_bytes'] / 2**20:.1f} MiB | {row['planned_bytes'] / 2**20:.1f} MiB "
              f"| {row['peak_bytes'] / one:.2f} |")


def measure_speed(options):
    seconds = {name: [] for name in SPEEDS}
    for each in range(options.rounds):
        for name, fields in SPEEDS.items():
            lines = train({"model__context": LENGTH, **fields}, options.steps)
            seconds[name].append(statistics.median(line["step_seconds"] for line in lines))
        print(f"round {each + 1} of {options.rounds}", flush=True)
    one = seconds["one rank"]
    return [{"setting": name, "seconds": times, "median": statistics.median(times),
             "times_faster": statistics.median(a / b for a, b in zip(one, times)), "planned": plan({"model__context": LENGTH, **SPEEDS[name]})["step_seconds"]}
            for name, times in seconds.items()]


def print_speed(rows):
    print(f"\nsamples of {LENGTH} tokens, a thread a rank\n\n| setting | step, median | min – max | planned | × one rank |\n| --- | --- | --- | --- | --- |")
    for row in rows:
        print(f"| {row['setting']} | {row['median']:.3f} s | {min(row['seconds']):.3f} – {max(row['seconds']):.3f} | {row['planned']:.3f} s "
              f"| {row['times_faster']:.2f} |")


def measure_links(options):
    rows = []
    for megabits in options.links:
        for exchange in ("ring", "ulysses"):
            fields = {"model__context": LENGTH, "mesh__cp": 2, "mesh__cp_exchange": exchange,
                      "mesh__link__bandwidth": f"{round(megabits * 1e6 / 8)}B"}
            lines = train(fields, 2, processes=2)
            planned = plan(fields)
            rows.append({"megabits": megabits, "exchange": exchange, "seconds": statistics.median(line["step_seconds"] for line in lines),
                         "planned": planned["step_seconds"], "sent_bytes": lines[-1]["sent_bytes"]["cp"] / 2,
                         "planned_bytes": planned["ranks"][0]["communication"]["cp"]["sent_bytes"]})
    return rows


def print_links(rows):
    print("\n| link, Mbit/s | exchange | step | planned | measured / planned | sent by a rank for attention | planned |\n| --- | --- | --- | --- | --- | --- | --- |")
    for row in rows:
        print(f"| {row['megabits']:g} | {row['exchange']} | {row['seconds']:.3f} s | {row['planned']:.3f} s | {row['seconds'] / row['planned']:.2f} "
              f"| {row['sent_bytes'] / 2**20:.2f} MiB | {row['planned_bytes'] / 2**20:.2f} MiB |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=3, help="measured steps of a run")
    parser.add_argument("--links", type=float, nargs="*", default=[100, 1000], help="Mbit/s")
    options = parser.parse_args()
    strata_runs.require_program()
    result = {}
    result["memory"] = [row for exchange in ("ring", "ulysses") for row in measure_memory(exchange)]
    print_memory(result["memory"])
    result["speed"] = measure_speed(options)
    print_speed(result["speed"])
    result["links"] = measure_links(options)
    print_links(result["links"])
    strata_runs.save(HERE, result)


if __name__ == "__main__":
    main()
