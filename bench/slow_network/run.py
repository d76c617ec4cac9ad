#!/usr/bin/env python3
"""Measures 1-bit Adam against AdamW on emulated links, and the losses that both reach.

    python3 bench/slow_network/run.py [--rounds 3] [--steps 4] [--links 10 100 1000] [--seeds 1 2 3]

What is claimed and how it is measured: bench/slow_network/README.md.
"""

import argparse
import json
import statistics
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import strata_runs  # noqa: E402

KINDS = ("adamw", "onebit-adam")
PROCESSES = 2
FREEZE = 1  # of recipe.yaml


def link_of(megabits):
    """The field of a link; none for 0."""
    return {} if not megabits else {"mesh__link__bandwidth": f"{round(megabits * 1e6 / 8)}B"}


def steps_of(kind, megabits, steps):
    """The metrics of the measured steps: the first is slower, and the first ones of 1-bit Adam are AdamW's."""
    before = 1 if kind == "adamw" else FREEZE + 1
    fields = {"train__optimizer__kind": kind, "train__steps": before + steps, **link_of(megabits)}
    return strata_runs.train(HERE / "recipe.yaml", fields, PROCESSES)[before:]


def planned_seconds(kind, megabits):
    return strata_runs.plan(HERE / "recipe.yaml", {"train__optimizer__kind": kind, **link_of(megabits)})["step_seconds"]


def measure_links(options):
    seconds = {(kind, link): [] for link in options.links for kind in KINDS}
    sent = {}
    for each in range(options.rounds):
        for link in options.links:
            for kind in KINDS:
                lines = steps_of(kind, link, options.steps)
                seconds[kind, link].append(statistics.median(line["step_seconds"] for line in lines))
                sent[kind] = lines[-1]["sent_bytes"]["dp"] / PROCESSES
        print(f"round {each + 1} of {options.rounds}", flush=True)
    rows = []
    for link in options.links:
        planned = {kind: planned_seconds(kind, link) for kind in KINDS}
        for kind in KINDS:
            times = seconds[kind, link]
            ratios = [a / b for a, b in zip(seconds["adamw", link], times)]
            rows.append({"megabits": link, "optimizer": kind, "seconds": times, "median": statistics.median(times), "planned": planned[kind],
                         "sent_bytes": sent[kind], "times_faster": statistics.median(ratios), "least": min(ratios), "most": max(ratios)})
    return rows


def print_links(rows):
    print("\n| link, Mbit/s | optimizer | step, median | min – max | planned | measured / planned | sent a rank and step | × AdamW |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for row in rows:
        print(f"| {row['megabits'] or 'no limit'} | {row['optimizer']} | {row['median']:.3f} s | {min(row['seconds']):.3f} – {max(row['seconds']):.3f} "
              f"| {row['planned']:.3f} s | {row['median'] / row['planned']:.2f} | {row['sent_bytes'] / 2**20:.2f} MiB "
              f"| {row['times_faster']:.2f} ({row['least']:.2f}–{row['most']:.2f}) |")
    bytes_of = {row["optimizer"]: row["sent_bytes"] for row in rows}
    print(f"\nbytes: {bytes_of['adamw'] / bytes_of['onebit-adam']:.2f} times fewer than fp32, "
          f"{bytes_of['adamw'] / bytes_of['onebit-adam'] / 2:.2f} times fewer than fp16")


def measure_losses(options):
    rows = []
    for seed in options.seeds:
        for kind in KINDS:
            with tempfile.TemporaryDirectory() as folder:
                metrics = Path(folder) / "run.json"
                fields = {"train__optimizer__kind": kind, "train__seed": seed}
                strata_runs.call("train", str(HERE / "loss.yaml"), "--run-json", str(metrics), *strata_runs.settings(fields))
                run = json.loads(metrics.read_text())
            rows.append({"seed": seed, "optimizer": kind, "validation_loss": run["validations"][-1]["val_loss"]})
            print(rows[-1], flush=True)
    return rows


def print_losses(rows):
    print("\n| seed | AdamW | 1-bit Adam | difference |\n| --- | --- | --- | --- |")
    by_seed = {(row["seed"], row["optimizer"]): row["validation_loss"] for row in rows}
    for seed in sorted({row["seed"] for row in rows}):
        adam, bits = by_seed[seed, "adamw"], by_seed[seed, "onebit-adam"]
        print(f"| {seed} | {adam:.4f} | {bits:.4f} | {100 * (bits / adam - 1):+.2f} % |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=3, help="measured steps of a run")
    parser.add_argument("--links", type=float, nargs="*", default=[10, 100, 1000], help="Mbit/s; 0: no limit")
    parser.add_argument("--seeds", type=int, nargs="*", default=[1, 2, 3])
    options = parser.parse_args()
    strata_runs.require_program()
    result = {"links": [], "losses": []}
    if options.links:
        result["links"] = measure_links(options)
        print_links(result["links"])
    if options.seeds:
        result["losses"] = measure_losses(options)
        print_losses(result["losses"])
    strata_runs.save(HERE, result)


if __name__ == "__main__":
    main()
