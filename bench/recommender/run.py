#!/usr/bin/env python3
"""Measures steps of a recommender against FBGEMM's tables and nn.EmbeddingBag with the same net, interleaved.

    python3 bench/recommender/run.py --fbgemm FOLDER/bin/python [--rounds 5] [--batches 2048,4096] [--only NAME ...]

What is claimed and how it is measured: bench/recommender/README.md. Without --fbgemm its contestants are left out.
"""

import argparse
import csv
import json
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from contest import PYTHON, STRATA, Pair, add_only, add_options, chosen, parse, remaining, spread, summary, write  # noqa: E402
from resident import call_or_exit  # noqa: E402

FEATURES, NUMBERS, SAMPLES, ROWS = 26, 13, 1_000_000, 100_000
PAIRS = (Pair("strata", ("fbgemm", "fbgemm, compiled net")), Pair("strata", ("bag", "bag, compiled net")),
         Pair("strata, 3 late", ("fbgemm", "fbgemm, compiled net")), Pair("strata, 3 late", ("bag", "bag, compiled net")))


@dataclass(frozen=True)
class Log:
    """The same samples as Strata's records and as arrays."""

    records: Path
    arrays: Path


def make_log(folder):
    recipe, records, text, arrays = (folder / name for name in ("log.yaml", "log.strata", "log.tsv", "log.npz"))
    features = "".join(f"      - {{name: c{i + 1}, cardinality: {ROWS}, zipf: 1.05}}\n" for i in range(FEATURES))
    recipe.write_text(f"model: {{kind: dlrm, bottom: [64, 16]}}\ndata:\n  format: synthetic\n  synthetic:\n"
                      f"    samples: {SAMPLES}\n    numeric: {NUMBERS}\n    features:\n{features}")
    call_or_exit([STRATA, "convert", str(recipe), str(records)])
    call_or_exit([STRATA, "convert", str(records), str(text)])
    labels = numpy.empty(SAMPLES, numpy.float32)
    numbers, ids = numpy.empty((SAMPLES, NUMBERS), numpy.float32), numpy.empty((SAMPLES, FEATURES), numpy.int64)
    with text.open(newline="") as file:
        rows = csv.reader(file, delimiter="\t")
        next(rows)
        for i, row in enumerate(rows):
            labels[i], numbers[i], ids[i] = row[0], row[1:1 + NUMBERS], row[1 + NUMBERS:]
    numpy.savez(arrays, labels=labels, numbers=numbers, ids=ids)
    text.unlink()
    return Log(records, arrays)


def strata(log, folder, options, batch, settings):
    recipe, metrics = folder / "dlrm.yaml", folder / "metrics.jsonl"
    columns = "".join(f"    - {{name: c{i + 1}, width: 16}}\n" for i in range(FEATURES))
    recipe.write_text(f"""\
model: {{kind: dlrm, bottom: [64, 16], top: [64, 32]}}
data:
  train: {log.records}
  memory: 1GiB
  numeric: [{", ".join(f"n{i + 1}" for i in range(NUMBERS))}]
  categorical:
{columns}embedding: {{servers: local, optimizer: {{kind: adagrad, learning_rate: 0.05}}}}
train: {{mini_batch: {batch}, steps: {options.warmup + options.steps}, optimizer: {{kind: adamw, learning_rate: 1e-3}}, decay: constant, validation_samples: 0}}
""")
    _, resident = call_or_exit([STRATA, "train", str(recipe), "--metrics", str(metrics),
                                *(part for setting in settings for part in ("--set", setting))])
    steps = [json.loads(line) for line in metrics.read_text().splitlines()]
    return {"step_seconds": [step["step_seconds"] for step in steps], "loss": steps[-1]["loss"], "peak_resident_bytes": resident}


def peer(python, kind, log, options, batch, more):
    command = [python, str(HERE / "torch_dlrm.py"), kind, str(log.arrays), "--batch", str(batch), "--steps", str(options.steps),
               "--warmup", str(options.warmup), *more]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"run: {' '.join(command)}\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def contestants(options, log, folder):
    late = ["embedding.staleness=4", "mesh.dp=2", "mesh.threads=1"]
    all_of = {"strata": lambda batch: strata(log, folder, options, batch, ["embedding.staleness=1", "mesh.dp=1", "mesh.threads=2"]),
              "strata, 3 late": lambda batch: strata(log, folder, options, batch, late)}
    for kind, python in (("fbgemm", options.fbgemm), ("bag", PYTHON)):
        if not python:
            continue
        for name, more in ((kind, ()), (f"{kind}, compiled net", ("--compile",))):
            all_of[name] = lambda batch, kind=kind, python=python, more=more: peer(python, kind, log, options, batch, more)
    return chosen(options, all_of)


def measure(options, batch, all_of):
    rounds = []
    for number in range(options.rounds):
        result = {}
        # Every other round runs in reverse order, so that no contestant always follows another.
        for name in sorted(all_of, reverse=number % 2 == 1):
            result[name] = all_of[name](batch)
            measured = statistics.median(result[name]["step_seconds"][options.warmup:])
            result[name]["samples_per_second"] = batch / measured
            print(f"batch {batch}  round {number + 1}/{options.rounds}  {name:22} {1e3 * measured:6.1f} ms/step", file=sys.stderr)
        rounds.append(result)
    return rounds


def report(batch, rounds):
    """Prints the table of a batch; returns its summary."""
    found = {}
    print(f"\n| batch {batch} | samples/s | ms a step | loss | peak resident |\n| --- | --- | --- | --- | --- |")
    for name in rounds[0]:
        rates = [r[name]["samples_per_second"] for r in rounds]
        found[name] = summary(rates)
        print(f"| {name} | {spread(rates, 0)} | {spread([1e3 * batch / rate for rate in rates], 1)} | "
              f"{rounds[-1][name]['loss']:.3f} | {max(r[name]['peak_resident_bytes'] for r in rounds) / 2**20:.0f} MiB |")
    print()
    for pair in remaining(PAIRS, rounds[0]):
        ratios = [r[pair.ours]["samples_per_second"] / max(r[p]["samples_per_second"] for p in pair.peers) for r in rounds]
        found[f"{pair.ours} / {pair.peers[0]}"] = summary(ratios)
        print(f"{pair.ours} against the better of {' and '.join(pair.peers)}: {spread(ratios, 2, '×')}")
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_options(parser)
    add_only(parser)
    parser.set_defaults(rounds=5, steps=120, warmup=100)
    parser.add_argument("--batches", default="2048,4096")
    parser.add_argument("--fbgemm", help="a Python with fbgemm-gpu-cpu and the PyTorch of Strata")
    options = parse(parser)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        all_of = contestants(options, make_log(folder), folder)
        rounds = {batch: measure(options, batch, all_of) for batch in map(int, options.batches.split(","))}
        write(HERE, options, {"batches": {batch: report(batch, rounds[batch]) for batch in rounds}}, rounds)


if __name__ == "__main__":
    main()
