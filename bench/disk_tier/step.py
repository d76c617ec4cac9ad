#!/usr/bin/env python3
"""Holds steps of training from disk to the longer of disk and compute: interleaved rounds, medians.

    python3 bench/disk_tier/step.py [--folder FOLDER] [--rounds 5] [--steps 5] [--only 2]

What is claimed and how it is measured: bench/disk_tier/README.md.
"""

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import contest  # noqa: E402
from resident import ROOT, call_or_exit  # noqa: E402
from run import PROGRAM  # noqa: E402
from spans import covered, middle_step, spans_of  # noqa: E402

# Samples of a step: what it reads and writes is always the same, what it computes is not.
SAMPLES = (1, 2, 4, 8)
IN_MEMORY = ["memory.weights=device", "memory.gradients=device", "memory.states=device",
             "memory.window=0"]


def plain_rates(folder, depth):
    """Bytes a second of a plain O_DIRECT reader and writer, as long as a step moves bytes."""
    command = [str(PROGRAM), str(folder / "chunks"), "1", "32", "16", str(depth)]
    line = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    entry = json.loads(line.splitlines()[-1])
    shutil.rmtree(folder / "chunks", ignore_errors=True)
    return {way: entry[f"plain {way}"]["bytes_per_second"] for way in ("read", "write")}


def train(settings, options, folder):
    """One run: medians of its measured steps."""
    steps = options.warmup + options.steps
    with tempfile.TemporaryDirectory(dir=folder) as place:
        metrics, trace = Path(place) / "metrics.jsonl", Path(place) / "trace.json"
        command = [contest.STRATA, "train", str(HERE / "recipe.yaml"), "--metrics", str(metrics),
                   "--trace", str(trace)]
        for setting in [*settings, f"train.steps={steps}", f"memory.disk.path={place}/disk"]:
            command += ["--set", setting]
        call_or_exit(command)
        records = [json.loads(line) for line in metrics.read_text().splitlines()][options.warmup:]
        events = json.loads(trace.read_text())["traceEvents"]
    threads = spans_of(events, "measured")
    rank = threads["rank 0"]
    norms = sorted(end for kind, _, end in rank if kind == "N")

    def tracks(*names):
        return [span for name in names for span in threads.get(f"rank 0, {name}", [])]

    def busy(total, *names):
        return middle_step(tracks(*names), names, norms, options.warmup, total)

    result = {"step": statistics.median(r["step_seconds"] for r in records),
              "loss": records[-1]["loss_hex"],
              "compute": middle_step(rank, ("F", "R", "B"), norms, options.warmup),
              "optimizer": busy(covered, "host update")}
    if "offload" in records[-1]:
        disk = [r["offload"]["disk"] for r in records]
        result["bytes_read"] = statistics.median(d["bytes_read"] for d in disk)
        result["bytes_written"] = statistics.median(d["bytes_written"] for d in disk)
        result["disk_busy"] = busy(covered, "disk read", "disk write")
    return result


def ratios(entry, plain):
    disk = (entry["bytes_read"] / plain["read"] + entry["bytes_written"] / plain["write"])
    bounds = {"compute": entry["compute"], "disk": disk}
    largest = max(bounds, key=bounds.get)
    busiest = max(entry["compute"], entry["disk_busy"])
    return {**entry, "disk": disk, "largest": largest, "of_largest": entry["step"] / bounds[largest],
            "of_busiest": entry["step"] / busiest}


def table(names, rounds):
    lines = ["| samples a step | step | compute | disk, at the plain rates | disk, as it was busy | "
             "optimizer | step / largest | step / larger of compute and busy disk |",
             "|" + " --- |" * 8]

    def ms(values):
        return f"{1e3 * statistics.median(values):.0f} ms"

    def spread(values):
        return f"{statistics.median(values):.2f} ({min(values):.2f} – {max(values):.2f})"

    for name in names:
        runs = [r[name] for r in rounds]
        lines.append(f"| {name} | " + " | ".join(
            ms([r[field] for r in runs])
            for field in ("step", "compute", "disk", "disk_busy", "optimizer"))
            + "".join(f" | {spread([r[field] for r in runs])}"
                      for field in ("of_largest", "of_busiest")) + " |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    contest.add_options(parser)
    parser.set_defaults(rounds=5, steps=5)
    parser.add_argument("--folder", type=Path, default=ROOT / "build", help="on the disk to measure")
    parser.add_argument("--depth", type=int, default=16, help="blocks of 1 MiB under way, of the plain peer")
    parser.add_argument("--only", type=int, nargs="+", choices=SAMPLES, help="these samples alone")
    options = contest.parse(parser)
    options.folder = str(options.folder)
    if not PROGRAM.exists():
        sys.exit(f"step: no {PROGRAM}; run `ninja -C build/release disk_tier_bench` first")
    folder = Path(options.folder)
    # The last one waits with its updates for the norm of all gradients.
    settings = {str(n): [f"train.mini_batch={n}", f"train.micro_batch={n}"]
                for n in options.only or SAMPLES}
    settings[f"{max(options.only or SAMPLES)}, clipped"] = [
        *settings[str(max(options.only or SAMPLES))], "train.clip=1.0"]

    losses = {name: train([*some, *IN_MEMORY], options, folder)["loss"]
              for name, some in settings.items()}
    rounds = []
    for number in range(options.rounds):
        result = {"plain": plain_rates(folder, options.depth)}
        # Every other round goes backwards, so that no setting always follows another.
        names = list(settings)
        for name in names[::-1] if number % 2 else names:
            entry = train(settings[name], options, folder)
            if entry["loss"] != losses[name]:
                sys.exit(f"step: another loss than in memory: {entry['loss']}")
            result[name] = ratios(entry, result["plain"])
            print(f"round {number + 1}/{options.rounds}  {name:>10} samples  step "
                  f"{1e3 * entry['step']:.0f} ms, {result[name]['of_largest']:.2f} of "
                  f"{result[name]['largest']}", file=sys.stderr)
        rounds.append(result)
    print("\n" + table(settings, rounds))
    contest.write(HERE, options, {"settings": settings}, rounds)


if __name__ == "__main__":
    main()
