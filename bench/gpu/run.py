#!/usr/bin/env python3
"""Compares training of GPT-2 124M on one GPU with PyTorch of the same machine, in the same run.

    python3 bench/gpu/run.py --strata build/gpu/strata [--model 124m|1.5b] [--batches 1,32] [--rounds 2]
                             [--only "strata, aten;torch eager"] [--out FILE.json]

Rounds alternate the order of contestants; a figure is the median of all measured steps, with the lowest and
the highest median of a round. What is claimed and what has run: bench/gpu/README.md. Ends with 77 where
PyTorch finds no GPU.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
LENGTH = 1024
WARMUP = 5
PEAK = 989.4e12  # FLOP/s of an H100 in bf16, dense
MODELS = {"124m": {"layers": 12, "width": 768, "heads": 12}, "1.5b": {"layers": 48, "width": 1600, "heads": 25}}
VOCAB = 50304
LIMIT = 300  # seconds of a run: who hangs leaves time for the others

# name: settings of ours and variables of their environment, or (mode, deterministic) of PyTorch's
OURS = {
    "strata, aten": (("train.primitives=aten", "train.deterministic=true"), {}),
    "strata, aten, not recorded": (("train.primitives=aten", "train.deterministic=true", "train.graph=off"), {}),
    "strata": (("train.primitives=own", "train.deterministic=true"), {}),
    "strata, not recorded": (("train.primitives=own", "train.deterministic=true", "train.graph=off"), {}),
    "strata, products by cuBLASLt": (("train.primitives=own", "train.deterministic=true"),
                                     {"STRATA_CUDA_PRODUCTS": "cublaslt"}),
    "strata, not deterministic": (("train.primitives=own", "train.deterministic=false"), {}),
}
PEERS = {
    "torch eager": ("eager", False),
    "torch eager, deterministic": ("eager", True),
    "torch graph, deterministic": ("graph", True),
    "torch compile": ("compile", False),
    "torch compile, deterministic": ("compile", True),
    "torch compile, graph, deterministic": ("compile-graph", True),
    "torch reduce-overhead": ("reduce-overhead", False),
}


def run_ours(options, settings, environment, batch):
    with tempfile.TemporaryDirectory() as folder:
        metrics = Path(folder) / "metrics.jsonl"
        command = [options.strata, "train", str(HERE / "gpt2-124m.yaml"), "--metrics", str(metrics)]
        sizes = [f"model.{name}={value}" for name, value in MODELS[options.model].items()]
        for setting in (*settings, *sizes, f"train.mini_batch={batch}", f"train.micro_batch={batch}",
                        f"train.steps={WARMUP + options.steps}", *options.set):
            command += ["--set", setting]
        try:
            done = subprocess.run(command, cwd=ROOT, env={**os.environ, **environment}, capture_output=True, text=True,
                                  check=False, timeout=LIMIT)
        except subprocess.TimeoutExpired:
            return {"failed": f"not done after {LIMIT} s"}
        if done.returncode:
            return {"failed": done.stderr.strip()[-400:]}
        steps = [json.loads(line) for line in metrics.read_text().splitlines()][WARMUP:]
        peak = re.search(r"peak (\S+ \S+) \(predicted (\S+ \S+)\)", done.stdout)
        return {"seconds": [step["step_seconds"] for step in steps], "peak_bytes": steps[-1]["peak_bytes"][0],
                "peak": f"peak {peak[1]}, planned {peak[2]}" if peak else ""}


def run_peer(options, mode, deterministic, batch):
    sizes = [word for name, value in MODELS[options.model].items() for word in (f"--{name}", str(value))]
    command = [sys.executable, str(HERE / "peer_gpt2.py"), "--modes", mode, "--batches", str(batch), "--steps",
               str(options.steps), "--warmup", str(WARMUP), "--json", *sizes]
    try:
        done = subprocess.run(command + ["--deterministic"] * deterministic, capture_output=True, text=True,
                              check=False, timeout=LIMIT)
    except subprocess.TimeoutExpired:
        return {"failed": f"not done after {LIMIT} s"}
    for line in done.stdout.splitlines():
        if line.startswith("{"):
            return json.loads(line)
    return {"failed": (done.stdout + done.stderr).strip()[-400:]}


def operations_of_a_token(model):
    """6 N + 6 L C T, causal, N without the positions: as peer_gpt2.py counts."""
    layers, width = model["layers"], model["width"]
    weights = VOCAB * width + layers * (12 * width * width + 13 * width) + 2 * width
    return 6 * weights + 6 * layers * width * LENGTH


def row_of(options, results, name, batch):
    """Tokens a second, the median of all measured steps (None: all failed), and the line that says so."""
    own = [result for result in results if result["name"] == name and result["batch"] == batch]
    rounds = [result["seconds"] for result in own if "seconds" in result]
    if not rounds:
        return None, f"{name:36} batch {batch:3}  failed: {own[-1]['failed'] if own else ''}"
    rates = sorted(batch * LENGTH / statistics.median(seconds) for seconds in rounds)
    middle = batch * LENGTH / statistics.median(sum(rounds, []))
    share = middle * operations_of_a_token(MODELS[options.model]) / PEAK
    peak = next((result.get("peak") or f"peak {result['peak_bytes'] / 2**30:.2f} GiB" for result in own
                 if "peak_bytes" in result), "")
    return middle, (f"{name:36} batch {batch:3}  {middle / 1e3:8.1f} k tokens/s  ({rates[0] / 1e3:.1f} .. "
                    f"{rates[-1] / 1e3:.1f})  MFU {100 * share:4.1f} %  {peak}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--strata", default="build/gpu/strata")
    parser.add_argument("--model", default="124m", choices=MODELS)
    parser.add_argument("--batches", default="1,32")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--only", default="", help="contestants, separated by semicolons (default: all)")
    parser.add_argument("--set", action="append", default=[], help="of ours, e.g. train.graph=off")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    contestants = [name.strip() for name in options.only.split(";")] if options.only else [*OURS, *PEERS]
    if unknown := [name for name in contestants if name not in {**OURS, **PEERS}]:
        parser.error(f"--only: no contestant {unknown[0]!r}; there are {'; '.join([*OURS, *PEERS])}")
    import torch  # pylint: disable=import-outside-toplevel

    if not torch.cuda.is_available():
        print("bench/gpu: skipped, PyTorch finds no GPU")
        return 77
    if not (ROOT / "data/kjv.txt").exists():
        sys.exit("bench/gpu: data/kjv.txt is missing: tools/fetch_text.sh, or bring it along")
    print(f"torch {torch.__version__} on {torch.cuda.get_device_name()}")
    results = []
    for batch in map(int, options.batches.split(",")):
        for number in range(options.rounds):
            for name in sorted(contestants, reverse=number % 2 == 1):
                result = (run_ours(options, *OURS[name], batch) if name in OURS
                          else run_peer(options, *PEERS[name], batch))
                results.append({"name": name, "batch": batch, "round": number, **result})
                # At once: the machine may be gone before the last one.
                print(f"round {number + 1}  {row_of(options, results, name, batch)[1]}", file=sys.stderr, flush=True)
                if options.out:
                    options.out.write_text(json.dumps(results, indent=1) + "\n")
        medians = {}
        for name in contestants:
            middle, row = row_of(options, results, name, batch)
            print(row)
            if middle:
                medians[name] = middle
        deterministic = [medians[name] for name in PEERS if name in medians and PEERS[name][1]]
        for what, ours, other in (("own primitives / ATen's", "strata", medians.get("strata, aten")),
                                  ("recorded / not recorded", "strata", medians.get("strata, not recorded")),
                                  ("deterministic / not", "strata", medians.get("strata, not deterministic")),
                                  ("strata / best deterministic PyTorch", "strata", max(deterministic, default=None))):
            if ours in medians and other:
                print(f"{what:36} batch {batch:3}  {medians[ours] / other:8.3f}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
