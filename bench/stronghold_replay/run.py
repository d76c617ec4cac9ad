#!/usr/bin/env python3
"""Replays STRONGHOLD's published comparison at a thousandth: the deepest model of each placement, proven by training
it and by the refusal of one layer more, and the speed of all at one depth.

    python3 bench/stronghold_replay/run.py [--rounds 7] [--steps 20]

What is claimed and how it is measured: bench/stronghold_replay/README.md.
"""

import argparse
import collections
import ctypes
import json
import re
import statistics
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import contest  # noqa: E402
from resident import ROOT, call_or_exit  # noqa: E402

VOCAB, WIDTH = 50, 64
LAYER_PARAMETERS = 12 * WIDTH * WIDTH + 13 * WIDTH
TEXT = ROOT / "data/kjv.txt"


def placed(weights, gradients, states, window):
    return [f"memory.weights={weights}", f"memory.gradients={gradients}",
            f"memory.states={states}", f"memory.window={window}"]


CLIPPED = "the same, with clipping"

# Name: settings, the published number of layers, and of which system.
MODES = {
    "in memory": (placed("device", "device", "device", 0), 32, "Megatron-LM"),
    "states on the host": (placed("device", "device", "host", 0), 48, "ZeRO-Offload"),
    "gradients and states on the host": (placed("device", "host", "host", 0), None, ""),
    "all on the host, one layer at a time": (placed("host", "host", "host", 1), 78, "L2L"),
    "all on the host, window": (placed("host", "host", "host", 0), 100, "STRONGHOLD"),
    CLIPPED: ([*placed("host", "host", "host", 0), "train.clip=1"], None, ""),
}
DEEPEST = "all on the host, window"
COMMON_LAYERS = 32


def write_tokens(path):
    """The text's most frequent bytes are tokens of their own, all others the last one."""
    text = TEXT.read_bytes()
    common = [byte for byte, _ in collections.Counter(text).most_common(VOCAB - 1)]
    table = bytes(common.index(b) if b in common else VOCAB - 1 for b in range(256))
    tokens = text.translate(table)
    digest = ctypes.CDLL("libxxhash.so.0").XXH3_64bits
    digest.restype, digest.argtypes = ctypes.c_uint64, (ctypes.c_char_p, ctypes.c_size_t)
    path.write_bytes(bytes.fromhex("895354524154410a")
                     + struct.pack("<IIQQQ", 1, 1, VOCAB, len(tokens), digest(tokens, len(tokens)))
                     + bytes(24) + tokens)


class Replay:
    def __init__(self, folder):
        self.folder = Path(folder)
        self.tokens = self.folder / "text.tokens"
        write_tokens(self.tokens)

    def command(self, verb, mode, layers, *more):
        fields = [*MODES[mode][0], f"model.layers={layers}", f"data.train={self.tokens}"]
        return [contest.STRATA, verb, str(HERE / "recipe.yaml"), *more,
                *(word for field in fields for word in ("--set", field))]

    def accepts(self, verb, mode, layers, *more):
        """True; False where the memory's bytes are what it refuses."""
        ran = subprocess.run(self.command(verb, mode, layers, *more), capture_output=True, text=True,
                             cwd=ROOT, check=False)
        if ran.returncode == 0:
            return True
        if ran.returncode == 2 and "[plan.memory]" in ran.stderr + ran.stdout:
            return False
        sys.exit(f"run: {' '.join(ran.args)} ended with {ran.returncode}:\n{ran.stdout}{ran.stderr}")

    def deepest(self, mode):
        """The most layers that `plan` accepts."""
        low, high = 1, 2
        while self.accepts("plan", mode, high, "--estimate"):
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            if self.accepts("plan", mode, middle, "--estimate"):
                low = middle
            else:
                high = middle
        return low

    def train(self, mode, layers, steps):
        metrics = self.folder / "metrics.jsonl"
        output, resident = call_or_exit(self.command(
            "train", mode, layers, "--metrics", str(metrics), "--set", f"train.steps={steps}"))
        records = [json.loads(line) for line in metrics.read_text().splitlines()]
        host = records[-1].get("offload", {}).get("host_peak_bytes", [0])
        predicted = re.search(r"step +predicted ([\d.]+) (s|ms|us)", output).groups()
        return {"losses": [r["loss_hex"] for r in records],
                "seconds": [r["step_seconds"] for r in records],
                "predicted": float(predicted[0]) * {"s": 1, "ms": 1e-3, "us": 1e-6}[predicted[1]],
                "device_bytes": max(records[-1]["peak_bytes"]), "host_bytes": max(host),
                "resident_bytes": resident}


def depths(replay):
    """What each mode holds at most: planned, then trained, and one layer more refused by `train` itself."""
    found = {}
    for mode in MODES:
        layers = replay.deepest(mode)
        run = replay.train(mode, layers, 3)
        if run["device_bytes"] > 32e6 or run["host_bytes"] > 90e6:
            sys.exit(f"run: {mode}, {layers} layers, left its budget: {run}")
        if len(run["losses"]) != 3 or replay.accepts("train", mode, layers + 1):
            sys.exit(f"run: {mode} trains {layers + 1} layers, which plan refuses")
        found[mode] = {"layers": layers, **run}
        print(f"{mode}: {layers} layers", file=sys.stderr)
    return found


def speeds(replay, layers, options):
    """Interleaved: every mode at one depth; the losses of training in memory, or it ends here."""
    rounds = []
    for number in range(options.rounds):
        result = {}
        for mode in sorted(MODES, reverse=number % 2 == 1):
            run = replay.train(mode, layers, options.warmup + options.steps)
            result[mode] = {"step": statistics.median(run["seconds"][options.warmup:]),
                            "predicted": run["predicted"], "losses": run["losses"]}
        for mode in set(MODES) - {CLIPPED}:
            if result[mode]["losses"] != result["in memory"]["losses"]:
                sys.exit(f"run: {mode} has other losses than in memory")
        for run in result.values():
            run.pop("losses")
        rounds.append(result)
        print(f"round {number + 1}/{options.rounds}", file=sys.stderr)
    return rounds


def table(found, common, rounds):
    lines = [f"| mode | `train.clip` | published | blocks | bytes a parameter on the host | at {common} layers, step | "
             "of the speed in memory | predicted |", "|" + " --- |" * 8]
    for mode, (_, published, system) in MODES.items():
        best = found[mode]
        parameters = best["layers"] * LAYER_PARAMETERS
        share = [r["in memory"]["step"] / r[mode]["step"] for r in rounds]
        planned = [r["in memory"]["predicted"] / r[mode]["predicted"] for r in rounds]
        step = statistics.median(r[mode]["step"] for r in rounds)
        lines.append(
            f"| {mode} | {1 if mode == CLIPPED else 0} | {f'{published} ({system})' if published else ''} | {best['layers']} | "
            f"{best['host_bytes'] / parameters:.1f} | {1e3 * step:.1f} ms | "
            f"{statistics.median(share):.3f} ({min(share):.3f} – {max(share):.3f}) | "
            f"{statistics.median(planned):.3f} |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    contest.add_options(parser)
    parser.set_defaults(steps=20)
    options = contest.parse(parser)
    with tempfile.TemporaryDirectory() as folder:
        replay = Replay(folder)
        found = depths(replay)
        rounds = speeds(replay, COMMON_LAYERS, options)
    print("\n" + table(found, COMMON_LAYERS, rounds))
    sixteen = int(90e6 / (16 * LAYER_PARAMETERS))
    print(f"\nwindow of 16 bytes a parameter: {sixteen} layers; {found[DEEPEST]['layers'] / sixteen:.2f}x of that")
    for run in found.values():
        run.pop("losses")
    contest.write(HERE, options, {"depths": found, "sixteen_bytes_layers": sixteen}, rounds)


if __name__ == "__main__":
    main()
