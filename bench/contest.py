"""What every bench shares: interleaved rounds, medians with their spread, ratios, table and JSON.

A contestant is a function that runs once and returns a dictionary with at least tokens_per_second
and peak_resident_bytes.
"""

import argparse
import contextlib
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Callable

from resident import ROOT, call_or_exit
from sizes import Sizes

PYTHON = str(ROOT / ".venv/bin/python")
STRATA = str(ROOT / "build/release/strata")
SIZES = Sizes()


@dataclass(frozen=True)
class Contestant:
    kind: str  # contestants of a kind share a physical limit
    run: Callable[[], dict]


@dataclass(frozen=True)
class Kind:
    processes: int
    threads: int
    ideal_share: float = 1.0  # of the GEMM rate, that the schedule alone would leave


@dataclass(frozen=True)
class Pair:
    """What is claimed: one of ours against the best of its peers."""

    ours: str
    peers: tuple


def add_options(parser):
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=4, help="measured steps of a short run")
    parser.add_argument("--warmup", type=int, default=2, help="steps before them")


def add_only(parser):
    parser.add_argument("--only", nargs="+", metavar="NAME", help="contestants whose names contain one of these")


def chosen(options, contestants):
    return {name: contestant for name, contestant in contestants.items()
            if not options.only or any(word in name for word in options.only)}


def remaining(pairs, contestants):
    """The pairs of which both sides have contestants."""
    pairs = [Pair(pair.ours, tuple(p for p in pair.peers if p in contestants)) for pair in pairs]
    return [pair for pair in pairs if pair.ours in contestants and pair.peers]


def parse(parser):
    options = parser.parse_args()
    if options.rounds < 1 or options.steps < 1 or options.warmup < 0:
        parser.error("--rounds and --steps start at 1, --warmup at 0")
    if not Path(STRATA).exists():
        sys.exit(f"run: no {STRATA}; run `make build` first")
    return options


class Program:
    """Lives through all rounds, and answers requests, a line each, with a line of JSON."""

    def __init__(self, command, variables=None):
        # Large arrays of every contestant lie on large pages alike, where the system has them to give.
        environment = {**os.environ, "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1", **(variables or {})}
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        env=environment)

    def ask(self, request):
        self.process.stdin.write(request + "\n")
        self.process.stdin.flush()
        for line in self.process.stdout:  # a library may say something first
            if line.startswith(("{", "[")):
                return json.loads(line)
        sys.exit(f"run: {' '.join(self.process.args)} ended")

    def end(self):
        self.process.stdin.close()
        self.process.wait()


@contextlib.contextmanager
def busy_processes(count):
    """Each computes without a pause, at the priority of everyone else."""
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


def torch_peer(program, arguments, options, environment=None):
    """Runs a Python peer; its own steps count, its memory is measured like everyone's."""
    command = [PYTHON, str(program), *arguments, "--steps", str(options.steps), "--warmup",
               str(options.warmup)]
    output, resident_bytes = call_or_exit(command, environment)
    last = [line for line in output.splitlines() if line.startswith("{")][-1]
    return {**json.loads(last), "peak_resident_bytes": resident_bytes}


def strata(recipe, settings, options, launch=(), read_trace=None):
    """Runs `strata train`; `read_trace` turns the path of its trace into more measures."""
    with tempfile.TemporaryDirectory() as folder:
        metrics, trace = Path(folder) / "metrics.jsonl", Path(folder) / "trace.json"
        command = [STRATA, *launch, "train", recipe, "--metrics", str(metrics)]
        if read_trace:
            command += ["--trace", str(trace)]
        for setting in [*settings, f"train.steps={options.warmup + options.steps}"]:
            command += ["--set", setting]
        _, resident_bytes = call_or_exit(command)
        seconds = [json.loads(line)["step_seconds"] for line in metrics.read_text().splitlines()]
        more = read_trace(trace) if read_trace else {}
    median = statistics.median(seconds[options.warmup:])
    return {"tokens_per_second": SIZES.tokens / median, "peak_resident_bytes": resident_bytes,
            "step_seconds": seconds, **more}


STAGES = 2
KINDS = {"pipeline": Kind(processes=STAGES, threads=1,
                          ideal_share=SIZES.micro_batches / (SIZES.micro_batches + STAGES - 1)),
         "one rank": Kind(processes=1, threads=2)}


TORCH_PIPELINES = ("torch gpipe", "torch 1f1b", "torch zb1p", "torch zbv")


def torch_contestants(options, names):
    """Of bench/pipeline/torch_peer.py, by name."""
    peers = {"torch gpipe": ("pipeline", ("pipeline", "--schedule", "gpipe", "--threads", "1")),
             "torch 1f1b": ("pipeline", ("pipeline", "--schedule", "1f1b", "--threads", "1")),
             "torch zb1p": ("pipeline", ("pipeline", "--schedule", "zb1p", "--threads", "1")),
             "torch zbv": ("pipeline", ("pipeline", "--schedule", "zbv", "--threads", "1")),
             "torch eager": ("one rank", ("eager", "--threads", "2")),
             "torch compile": ("one rank", ("compile", "--threads", "2"))}

    def run(arguments):
        entry = torch_peer(ROOT / "bench/pipeline/torch_peer.py", arguments, options)
        # The processes that compile are its children, so it measures its memory itself.
        return {**entry, "peak_resident_bytes": entry["resident_bytes"][0]} if arguments[0] == "compile" else entry

    return {name: Contestant(peers[name][0], lambda arguments=peers[name][1]: run(arguments)) for name in names}


def gemm(kind):
    command = [PYTHON, str(ROOT / "bench/gemm.py"), "--processes", str(kind.processes), "--threads",
               str(kind.threads)]
    return json.loads(call_or_exit(command)[0])["flops_per_second"]


def run_rounds(rounds, contestants, kinds, more=None):
    """`more` names what else is measured once a round."""
    results = []
    for number in range(rounds):
        result = {"gemm": {name: gemm(kind) for name, kind in kinds.items()}}
        # Every other round runs in reverse order, so that no contestant always follows another.
        for name in sorted(contestants, reverse=number % 2 == 1):
            entry = contestants[name].run()
            entry["gemm_share"] = (entry["tokens_per_second"] * SIZES.flops_per_token
                                   / result["gemm"][contestants[name].kind])
            result[name] = entry
            print(f"round {number + 1}/{rounds}  {name:22} {entry['tokens_per_second']:8.0f} "
                  f"tokens/s  {entry['peak_resident_bytes'] / 2**20:6.0f} MiB", file=sys.stderr)
        for name, measure in (more or {}).items():
            result[name] = measure()
        results.append(result)
    return results


def summary(values):
    low, middle, high = (statistics.quantiles(values, n=4) if len(values) > 1 else values * 3)
    return {"median": middle, "min": min(values), "max": max(values), "iqr": high - low}


def spread(values, digits, unit=""):
    """Median and range in words: "1.64× (1.60–1.70)"."""
    entry = summary(values)
    return f"{entry['median']:.{digits}f}{unit} ({entry['min']:.{digits}f}–{entry['max']:.{digits}f})"


def ratios(rounds, pair):
    """Per round: our rate over the best peer's, our memory over the leanest peer's."""
    speed = [r[pair.ours]["tokens_per_second"] / max(r[p]["tokens_per_second"] for p in pair.peers)
             for r in rounds]
    memory = [r[pair.ours]["peak_resident_bytes"]
              / min(r[p]["peak_resident_bytes"] for p in pair.peers) for r in rounds]
    return {"speed": summary(speed), "memory": summary(memory)}


def summarise(rounds, contestants, kinds, pairs):
    result = {"contestants": {}, "ratios": [ratios(rounds, pair) for pair in pairs],
              "gemm": {name: summary([r["gemm"][name] for r in rounds]) for name in kinds}}
    for name, contestant in contestants.items():
        entry = {field: summary([r[name][field] for r in rounds])
                 for field in ("tokens_per_second", "peak_resident_bytes", "gemm_share")}
        entry["ideal_share"] = entry["gemm_share"]["median"] / kinds[contestant.kind].ideal_share
        result["contestants"][name] = entry
    return result


def compare(options, contestants, kinds, pairs, more=None):
    """All rounds, with table and ratios printed; returns their summary and the rounds."""
    rounds = run_rounds(options.rounds, contestants, kinds, more)
    result = summarise(rounds, contestants, kinds, pairs)
    print("\n" + table(result) + "\n\n" + ratios_text(result, pairs))
    return result, rounds


def run(folder, description, contestants_of, kinds, pairs, add=lambda parser: None):
    """The program of a bench that measures nothing else."""
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    add_options(parser)
    add_only(parser)
    add(parser)
    options = parse(parser)
    contestants = chosen(options, contestants_of(options))
    write(folder, options, *compare(options, contestants, kinds, remaining(pairs, contestants)))


def table(result):
    lines = ["| contestant | tokens/s, median | min – max | IQR | of the GEMM rate | "
             "of the schedule's ideal | peak resident |", "| --- | --- | --- | --- | --- | --- | --- |"]
    for name, entry in result["contestants"].items():
        rate = entry["tokens_per_second"]
        lines.append(
            f"| {name} | {rate['median']:.0f} | {rate['min']:.0f} – {rate['max']:.0f} | "
            f"{rate['iqr']:.0f} | {entry['gemm_share']['median']:.0%} | {entry['ideal_share']:.0%} | "
            f"{entry['peak_resident_bytes']['median'] / 2**20:.0f} MiB |")
    return "\n".join(lines)


def ratios_text(result, pairs):
    lines = []
    for pair, ratio in zip(pairs, result["ratios"]):
        best = "the best of " if len(pair.peers) > 1 else ""
        lines.append(f"{pair.ours} against {best}{', '.join(pair.peers)}: "
                     f"speed {ratio['speed']['median']:.3f}x "
                     f"({ratio['speed']['min']:.3f} – {ratio['speed']['max']:.3f}), "
                     f"memory {ratio['memory']['median']:.2f}x")
    for name, rate in result["gemm"].items():
        lines.append(f"GEMM, {name}: {rate['median'] / 1e9:.0f} GFLOP/s")
    return "\n".join(lines)


def processor():
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def write(folder, options, result, rounds):
    machine = {"processor": processor(), "cores": os.cpu_count(), "system": platform.platform()}
    output = folder / "results" / time.strftime("%Y%m%d-%H%M%S.json")
    output.parent.mkdir(exist_ok=True)
    output.write_text(json.dumps({"machine": machine, "options": vars(options), **result,
                                  "rounds": rounds}, indent=1, default=str) + "\n")
    print(f"\n{output.relative_to(ROOT)}")
