#!/usr/bin/env python3
"""Compares Strata with PyTorch on one machine: interleaved rounds, medians, a table and a JSON file.

    python3 bench/pipeline/run.py [--rounds 7] [--steps 4]

What is claimed and how it is measured: bench/pipeline/README.md.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
PEER = [str(ROOT / ".venv/bin/python"), str(HERE / "torch_peer.py")]
STRATA = str(ROOT / "build/release/strata")

LAYERS, WIDTH, VOCAB, CONTEXT, MINI_BATCH, MICRO_BATCH = 6, 384, 256, 256, 32, 4
STAGES, MICRO_BATCHES = 2, MINI_BATCH // MICRO_BATCH
TOKENS = MINI_BATCH * CONTEXT
# Forward and backward of the weights' products, and of attention's two with half of them masked.
FLOPS_PER_TOKEN = 6 * (12 * LAYERS * WIDTH**2 + WIDTH * VOCAB) + 6 * LAYERS * WIDTH * CONTEXT

CONTESTANTS = {
    "strata 1f1b": ("pipeline", ["mesh.pp=2", "mesh.schedule=1f1b", "mesh.threads=1"]),
    "torch gpipe": ("pipeline", ["pipeline", "--schedule", "gpipe", "--threads", "1"]),
    "torch 1f1b": ("pipeline", ["pipeline", "--schedule", "1f1b", "--threads", "1"]),
    "strata one rank": ("one rank", ["mesh.pp=1", "mesh.threads=2"]),
    "torch eager": ("one rank", ["eager", "--threads", "2"]),
}
RATIOS = {"pipeline": ("strata 1f1b", ("torch gpipe", "torch 1f1b")),
          "one rank": ("strata one rank", ("torch eager",))}


def call(command):
    """Runs a command to its end; returns its output and its peak resident bytes."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                               cwd=ROOT)
    output = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"run: {' '.join(command)} ended with {process.returncode}:\n{output}")
    return output, usage.ru_maxrss * 1024


def run_torch(arguments, options):
    output, _ = call([*PEER, *arguments, "--steps", str(options.steps), "--warmup",
                      str(options.warmup)])
    result = json.loads(output.splitlines()[-1])
    return result["tokens_per_second"], result["peak_resident_bytes"]


def run_strata(settings, options):
    with tempfile.TemporaryDirectory() as folder:
        metrics = Path(folder) / "metrics.jsonl"
        command = [STRATA, "train", "recipes/bench.yaml", "--metrics", str(metrics)]
        for setting in [*settings, f"train.steps={options.warmup + options.steps}"]:
            command += ["--set", setting]
        _, resident_bytes = call(command)
        steps = [json.loads(line) for line in metrics.read_text().splitlines()]
    seconds = [step["step_seconds"] for step in steps]
    return TOKENS / statistics.median(seconds[options.warmup:]), resident_bytes


def run_gemm(kind):
    shape = {"pipeline": ["--processes", "2", "--threads", "1"], "one rank": ["--threads", "2"]}
    output, _ = call([*PEER, "gemm", *shape[kind]])
    return json.loads(output)["flops_per_second"]


def first_step_seconds():
    """Wall time from starting the program to its first line of metrics: one finished step."""
    with tempfile.TemporaryDirectory() as folder:
        metrics = Path(folder) / "metrics.jsonl"
        begin = time.perf_counter()
        process = subprocess.Popen(
            [STRATA, "train", "recipes/tiny.yaml", "--metrics", str(metrics)],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=ROOT)
        while not (metrics.exists() and "\n" in metrics.read_text()):
            if process.poll() not in (None, 0):
                sys.exit("run: strata train recipes/tiny.yaml failed")
            time.sleep(0.002)
        seconds = time.perf_counter() - begin
        process.wait()
    return seconds


def run_rounds(options):
    rounds = []
    for number in range(options.rounds):
        result = {"gemm": {kind: run_gemm(kind) for kind in RATIOS}}
        # Every other round runs in reverse order, so that no contestant always follows another.
        for name in sorted(CONTESTANTS, reverse=number % 2 == 1):
            kind, arguments = CONTESTANTS[name]
            contest = run_strata if name.startswith("strata") else run_torch
            rate, resident_bytes = contest(arguments, options)
            result[name] = {"tokens_per_second": rate, "peak_resident_bytes": resident_bytes,
                            "gemm_share": rate * FLOPS_PER_TOKEN / result["gemm"][kind]}
            print(f"round {number + 1}/{options.rounds}  {name:16} {rate:8.0f} tokens/s  "
                  f"{resident_bytes / 2**20:6.0f} MiB", file=sys.stderr)
        result["first_step_seconds"] = first_step_seconds()
        rounds.append(result)
    return rounds


def summary(values):
    low, middle, high = (statistics.quantiles(values, n=4) if len(values) > 1 else values * 3)
    return {"median": middle, "min": min(values), "max": max(values), "iqr": high - low}


def ratios(rounds, kind):
    """Per round: our rate over the best peer's, our memory over the leanest peer's."""
    ours, peers = RATIOS[kind]
    speed = [r[ours]["tokens_per_second"] / max(r[p]["tokens_per_second"] for p in peers)
             for r in rounds]
    memory = [r[ours]["peak_resident_bytes"] / min(r[p]["peak_resident_bytes"] for p in peers)
              for r in rounds]
    return {"speed": summary(speed), "memory": summary(memory)}


def ideal_share(kind):
    """Share of the GEMM rate that the schedule's bubble alone would leave."""
    return MICRO_BATCHES / (MICRO_BATCHES + STAGES - 1) if kind == "pipeline" else 1.0


def summarise(rounds):
    result = {"contestants": {}, "ratios": {kind: ratios(rounds, kind) for kind in RATIOS},
              "gemm": {kind: summary([r["gemm"][kind] for r in rounds]) for kind in RATIOS},
              "first_step_seconds": summary([r["first_step_seconds"] for r in rounds])}
    for name, (kind, _) in CONTESTANTS.items():
        entry = {field: summary([r[name][field] for r in rounds])
                 for field in ("tokens_per_second", "peak_resident_bytes", "gemm_share")}
        entry["ideal_share"] = entry["gemm_share"]["median"] / ideal_share(kind)
        result["contestants"][name] = entry
    return result


def table(result):
    lines = ["| contestant | tokens/s, median | min – max | IQR | of the GEMM rate | "
             "of the schedule's ideal | peak resident |", "| --- | --- | --- | --- | --- | --- | --- |"]
    for name, entry in result["contestants"].items():
        rate = entry["tokens_per_second"]
        lines.append(
            f"| {name} | {rate['median']:.0f} | {rate['min']:.0f} – {rate['max']:.0f} | "
            f"{rate['iqr']:.0f} | {entry['gemm_share']['median']:.0%} | {entry['ideal_share']:.0%} | "
            f"{entry['peak_resident_bytes']['median'] / 2**20:.0f} MiB |")
    lines.append("")
    for kind, ratio in result["ratios"].items():
        ours, peers = RATIOS[kind]
        better = "the better of " if len(peers) > 1 else ""
        lines.append(f"{ours} against {better}{' and '.join(peers)}: "
                     f"speed {ratio['speed']['median']:.3f}x "
                     f"({ratio['speed']['min']:.3f} – {ratio['speed']['max']:.3f}), "
                     f"memory {ratio['memory']['median']:.2f}x; "
                     f"GEMM {result['gemm'][kind]['median'] / 1e9:.0f} GFLOP/s")
    first = result["first_step_seconds"]
    lines.append(f"command to first finished step (recipes/tiny.yaml): {first['median']:.2f} s "
                 f"({first['min']:.2f} – {first['max']:.2f})")
    return "\n".join(lines)


def processor():
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=4, help="measured steps of a short run")
    parser.add_argument("--warmup", type=int, default=2, help="steps before them")
    options = parser.parse_args()
    if options.rounds < 1 or options.steps < 1 or options.warmup < 0:
        parser.error("--rounds and --steps start at 1, --warmup at 0")
    if not Path(STRATA).exists():
        sys.exit(f"run: no {STRATA}; run `make build` first")
    rounds = run_rounds(options)
    result = summarise(rounds)
    print(table(result))
    machine = {"processor": processor(), "cores": os.cpu_count(), "system": platform.platform()}
    output = HERE / "results" / time.strftime("%Y%m%d-%H%M%S.json")
    output.parent.mkdir(exist_ok=True)
    output.write_text(json.dumps({"machine": machine, "options": vars(options), **result,
                                  "rounds": rounds}, indent=1) + "\n")
    print(f"\n{output.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
