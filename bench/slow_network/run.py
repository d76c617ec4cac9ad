#!/usr/bin/env python3
"""Measures integers, 1-bit Adam, 0/1 Adam, LAMB, 1-bit LAMB and outer steps against AdamW on emulated links, and the losses that they reach.

    python3 bench/slow_network/run.py [--rounds 3] [--steps 4] [--links 10 100 1000] [--seeds 1 2 3]

What is claimed and how it is measured: bench/slow_network/README.md.
"""

import argparse
import json
import statistics
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import strata_runs  # noqa: E402

PROCESSES = 2
FREEZE = 1  # of recipe.yaml
ROUND = 25  # steps
LAMB_LOSS = {"train__optimizer__learning_rate": 2e-2, "train__optimizer__beta2": 0.999, "train__optimizer__epsilon": 1e-6}
INTERVAL, DOUBLINGS = 8, 3  # of 0/1 Adam: 1, 2 and 4 steps before 8


@dataclass
class Contestant:
    title: str
    fields: dict
    before: int = 1  # steps that are not measured: the first is slower
    steps: int = 0  # of a round, which is measured whole; 0: all steps are alike
    link: dict = field(default_factory=dict)  # fields of the runs on links
    loss: dict = field(default_factory=dict)  # fields of the runs to a loss


ADAMW = {"train__optimizer__kind": "adamw"}
CONTESTANTS = {
    "adamw": Contestant("AdamW", ADAMW),
    "int8": Contestant("int8 gradients", {**ADAMW, "mesh__traffic__gradients": "int8"}),
    "int4": Contestant("int4 gradients", {**ADAMW, "mesh__traffic__gradients": "int4"}),
    "zero3": Contestant("ZeRO 3", {**ADAMW, "mesh__zero": 3}),
    "zero3-integers": Contestant("ZeRO 3, int4 gradients, int8 weights",
                                 {**ADAMW, "mesh__zero": 3, "mesh__traffic__gradients": "int4", "mesh__traffic__weights": "int8"}),
    "onebit-adam": Contestant("1-bit Adam", {"train__optimizer__kind": "onebit-adam"}, before=FREEZE + 1),
    "zero-one-adam": Contestant("0/1 Adam", {"train__optimizer__kind": "zero-one-adam", "train__optimizer__local_most": INTERVAL},
                                before=FREEZE + DOUBLINGS * INTERVAL, steps=INTERVAL, link={"train__optimizer__local_doubling": INTERVAL},
                                loss={"train__optimizer__local_doubling": 160}),
    "lamb": Contestant("LAMB", {"train__optimizer__kind": "lamb"}, loss=LAMB_LOSS),
    "onebit-lamb": Contestant("1-bit LAMB", {"train__optimizer__kind": "onebit-lamb"}, before=FREEZE + 1, loss=LAMB_LOSS),
    "outer": Contestant("outer steps", {**ADAMW, "train__outer_steps__every": ROUND}, steps=ROUND),
}


def link_of(megabits):
    """The field of a link; none for 0."""
    return {} if not megabits else {"mesh__link__bandwidth": f"{round(megabits * 1e6 / 8)}B"}


def fields_of(name, megabits, steps):
    contestant = CONTESTANTS[name]
    count = contestant.before + (contestant.steps or steps)
    return {**contestant.fields, **contestant.link, "train__steps": count, **link_of(megabits)}


def measured_steps(name, megabits, steps):
    """The metrics of the measured steps."""
    return strata_runs.train(HERE / "recipe.yaml", fields_of(name, megabits, steps), PROCESSES)[CONTESTANTS[name].before:]


def seconds_of(name, lines):
    """Of a step: the median, or the mean of a round."""
    seconds = [line["step_seconds"] for line in lines]
    return statistics.fmean(seconds) if CONTESTANTS[name].steps else statistics.median(seconds)


def planned_seconds(name, megabits, steps):
    return strata_runs.plan(HERE / "recipe.yaml", fields_of(name, megabits, steps))["step_seconds"]


def measure_links(options):
    seconds = {(name, link): [] for link in options.links for name in options.contestants}
    sent = {}
    for each in range(options.rounds):
        for link in options.links:
            for name in options.contestants:
                lines = measured_steps(name, link, options.steps)
                seconds[name, link].append(seconds_of(name, lines))
                sent[name] = statistics.fmean(line["sent_bytes"]["dp"] for line in lines) / PROCESSES
        print(f"round {each + 1} of {options.rounds}", flush=True)
    rows = []
    for link in options.links:
        for name in options.contestants:
            times = seconds[name, link]
            ratios = [a / b for a, b in zip(seconds["adamw", link], times)]
            rows.append({"megabits": link, "optimizer": name, "seconds": times, "median": statistics.median(times),
                         "planned": planned_seconds(name, link, options.steps), "sent_bytes": sent[name], "times_faster": statistics.median(ratios),
                         "least": min(ratios), "most": max(ratios)})
    return rows


def print_links(rows):
    print("\n| link, Mbit/s | optimizer | step, median | min – max | planned | measured / planned | sent a rank and step | × AdamW |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for row in rows:
        print(f"| {row['megabits'] or 'no limit'} | {row['optimizer']} | {row['median']:.3f} s | {min(row['seconds']):.3f} – {max(row['seconds']):.3f} "
              f"| {row['planned']:.3f} s | {row['median'] / row['planned']:.2f} | {row['sent_bytes'] / 2**20:.2f} MiB "
              f"| {row['times_faster']:.2f} ({row['least']:.2f}–{row['most']:.2f}) |")
    bytes_of = {row["optimizer"]: row["sent_bytes"] for row in rows}
    print()
    for name in bytes_of:
        if name != "adamw":
            times = bytes_of["adamw"] / bytes_of[name]
            print(f"bytes of {name}: {times:.2f} times fewer than fp32, {times / 2:.2f} times fewer than fp16")


def measure_losses(options):
    rows = []
    for seed in options.seeds:
        for name in options.contestants:
            with tempfile.TemporaryDirectory() as folder:
                metrics = Path(folder) / "run.json"
                fields = {**CONTESTANTS[name].fields, **CONTESTANTS[name].loss, "train__seed": seed}
                if options.loss_steps:
                    fields["train__steps"] = options.loss_steps
                strata_runs.call("train", str(HERE / "loss.yaml"), "--run-json", str(metrics), *strata_runs.settings(fields))
                run = json.loads(metrics.read_text())
            rows.append({"seed": seed, "optimizer": name, "validation_loss": run["validations"][-1]["val_loss"]})
            print(rows[-1], flush=True)
    return rows


def print_losses(rows):
    by_seed = {(row["seed"], row["optimizer"]): row["validation_loss"] for row in rows}
    others = [name for name in dict.fromkeys(row["optimizer"] for row in rows) if name != "adamw"]
    print("\n| seed | AdamW |" + "".join(f" {CONTESTANTS[name].title} | difference |" for name in others))
    print("| --- | --- |" + " --- | --- |" * len(others))
    for seed in sorted({row["seed"] for row in rows}):
        adam = by_seed[seed, "adamw"]
        losses = [(by_seed[seed, name], 100 * (by_seed[seed, name] / adam - 1)) for name in others]
        print(f"| {seed} | {adam:.4f} |" + "".join(f" {loss:.4f} | {difference:+.2f} % |" for loss, difference in losses))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=3, help="measured steps of a run")
    parser.add_argument("--links", type=float, nargs="*", default=[10, 100, 1000], help="Mbit/s; 0: no limit")
    parser.add_argument("--seeds", type=int, nargs="*", default=[1, 2, 3])
    parser.add_argument("--loss-steps", type=int, default=0, help="steps of the runs to a loss; 0: those of loss.yaml")
    parser.add_argument("--contestants", nargs="+", default=list(CONTESTANTS), choices=list(CONTESTANTS))
    options = parser.parse_args()
    if options.contestants[0] != "adamw":
        parser.error("adamw comes first: the others are compared with it")
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
