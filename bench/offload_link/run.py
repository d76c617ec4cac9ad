#!/usr/bin/env python3
"""Holds offloaded training to its slowest resource, on an emulated link of five speeds: interleaved rounds, medians.

    python3 bench/offload_link/run.py [--rounds 5] [--steps 5] [--only 1.5]

What is claimed and how it is measured: bench/offload_link/README.md.
"""

import argparse
import json
import re
import statistics
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import contest  # noqa: E402
from resident import call_or_exit  # noqa: E402
from spans import middle_step, spans_of  # noqa: E402

# Seconds in which the link brings a step's weights, over those in which the step computes.
SHARES = (0.15, 0.35, 0.6, 1.5, 3.0)
IN_MEMORY = ["memory.weights=device", "memory.gradients=device", "memory.states=device",
             "memory.window=0"]


def own_seconds(output):
    """What the layers' own spans move the prediction by, from the line `miss`."""
    number, unit = re.search(r"([+-][\d.]+) (s|ms|us) in the layers' own spans", output).groups()
    return float(number) * {"s": 1, "ms": 1e-3, "us": 1e-6}[unit]


def train(settings, options):
    """One run: medians of its measured steps."""
    steps = options.warmup + options.steps
    with tempfile.TemporaryDirectory() as folder:
        metrics, trace = Path(folder) / "metrics.jsonl", Path(folder) / "trace.json"
        command = [contest.STRATA, "train", str(HERE / "recipe.yaml"), "--metrics", str(metrics),
                   "--trace", str(trace)]
        for setting in [*settings, f"train.steps={steps}"]:
            command += ["--set", setting]
        output, _ = call_or_exit(command)
        records = [json.loads(line) for line in metrics.read_text().splitlines()][options.warmup:]
        events = json.loads(trace.read_text())["traceEvents"]
    measured, predicted = spans_of(events, "measured"), spans_of(events, "predicted")
    rank, host = measured["rank 0"], measured.get("rank 0, host update", [])
    norms = sorted(end for kind, _, end in rank if kind == "N")
    result = {"step": statistics.median(r["step_seconds"] for r in records),
              "loss": records[-1]["loss"],
              "predicted": max(end for _, _, end in predicted["rank 0"]),
              "compute": middle_step(rank, ("F", "R", "B"), norms, options.warmup),
              "update": middle_step(rank, ("U",), norms, options.warmup),
              "optimizer": middle_step(host, ("host update",), norms, options.warmup)}
    result["replayed"] = result["predicted"] + own_seconds(output)
    if "offload" in records[-1]:
        result["to_device_bytes"] = records[-1]["offload"]["bytes_to_device"]
        result["to_host_bytes"] = records[-1]["offload"]["bytes_to_host"]
    return result


def ratios(entry, memory, bandwidth):
    """Of one run to its bounds and to the simulator, against the in-memory run of the same round."""
    bounds = {"compute": entry["compute"],
              "link": max(entry["to_device_bytes"], entry["to_host_bytes"]) / bandwidth,
              "optimizer": entry["optimizer"]}
    largest = max(bounds, key=bounds.get)
    in_memory = max(memory["step"] - memory["update"], bounds["link"], bounds["optimizer"])
    return {**entry, "bounds": bounds, "largest": largest,
            "of_largest": entry["step"] / bounds[largest],
            "of_largest_in_memory": entry["step"] / in_memory,
            "of_predicted": entry["step"] / entry["predicted"],
            "of_replayed": entry["step"] / entry["replayed"],
            "replayed_of_largest": entry["replayed"] / bounds[largest]}


def table(shares, bandwidths, rounds):
    lines = ["| link, of compute | bandwidth | step | compute | link | optimizer | step / largest | "
             "the same, compute in memory | simulator / largest | step / simulator | step / plan |",
             "|" + " --- |" * 11]

    def ms(values):
        return f"{1e3 * statistics.median(values):.0f} ms"

    def spread(values):
        return f"{statistics.median(values):.3f} ({min(values):.3f} – {max(values):.3f})"

    for share, bandwidth in zip(shares, bandwidths):
        runs = [r[str(share)] for r in rounds]
        lines.append(
            f"| {share} | {bandwidth / 1e6:.0f} MB/s | {ms([r['step'] for r in runs])} | "
            + " | ".join(ms([r["bounds"][name] for r in runs])
                         for name in ("compute", "link", "optimizer"))
            + "".join(f" | {spread([r[name] for r in runs])}"
                      for name in ("of_largest", "of_largest_in_memory", "replayed_of_largest",
                                   "of_replayed", "of_predicted")) + " |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    contest.add_options(parser)
    parser.set_defaults(rounds=5, steps=5)
    parser.add_argument("--only", type=float, nargs="+", choices=SHARES, help="these shares alone")
    options = contest.parse(parser)
    shares = options.only or SHARES

    memory = train(IN_MEMORY, options)
    traffic = train(["memory.link.bandwidth=0"], options)
    bandwidths = [round(traffic["to_device_bytes"] / (share * (memory["step"] - memory["update"])))
                  for share in shares]
    rounds = []
    for number in range(options.rounds):
        result = {"in memory": train(IN_MEMORY, options)}
        places = list(zip(shares, bandwidths))
        # Every other round goes backwards, so that no setting always follows another.
        for share, bandwidth in places[::-1] if number % 2 else places:
            entry = train([f"memory.link.bandwidth={bandwidth}"], options)
            if entry["loss"] != result["in memory"]["loss"]:
                sys.exit(f"run: another loss than in memory: {entry['loss']}")
            result[str(share)] = ratios(entry, result["in memory"], bandwidth)
            print(f"round {number + 1}/{options.rounds}  link {share:4} of compute  step "
                  f"{1e3 * entry['step']:.0f} ms, {result[str(share)]['of_largest']:.3f} of "
                  f"{result[str(share)]['largest']}, {result[str(share)]['of_predicted']:.3f} of the "
                  "simulator", file=sys.stderr)
        rounds.append(result)
    print("\n" + table(shares, bandwidths, rounds))
    contest.write(HERE, options, {"shares": shares, "bandwidths": bandwidths}, rounds)


if __name__ == "__main__":
    main()
