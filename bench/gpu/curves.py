#!/usr/bin/env python3
"""Draws the losses of GPT-2 124M as Strata and as PyTorch train it, from the same weights on the same batches.

    python3 bench/gpu/curves.py --training build/gpu/tests/parity/parity_training [--steps 200] [--out FOLDER]

Strata trains in bf16; PyTorch, written from the papers alone (tests/parity/decoders.py), in fp32 and under
autocast to bf16. How far PyTorch's two curves part says what rounding does; ours may part twice as far, or 2 %.
--device cpu --small tries the script itself in seconds. Writes curves.json and curves.svg.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/parity"))

GPT2 = {"kind": "gpt", "layers": 12, "width": 768, "heads": 12, "vocab": 50304, "context": 1024, "dropout": 0.0,
        "tie": True}
SMALL = {"layers": 2, "width": 64, "heads": 2, "vocab": 256, "context": 64}
ADAMW = {"kind": "adamw", "learning_rate": 6e-4, "beta1": 0.9, "beta2": 0.95, "epsilon": 1e-8, "weight_decay": 0.1}
TOLERANCE = 0.02  # relative


def recipe_of(options):
    batch = options.batch
    train = {"steps": options.steps, "mini_batch": batch, "micro_batch": batch, "warmup": max(1, options.steps // 10),
             "decay": "cosine", "final_fraction": 0.1, "clip": 1.0, "label_smoothing": 0.0, "seed": 7,
             "precision": "bf16", "optimizer": ADAMW}
    return {"model": {**GPT2, **(SMALL if options.small else {})}, "train": train,
            "mesh": {"device": options.device, "pp": 1, "threads": 1},
            "data": {"train": str(ROOT / "data/kjv.txt"), "tokenizer": "bytes", "validation_fraction": 0}}


def ours(options, recipe, folder):
    """What each step read and its loss; the first weights."""
    from decoders import read_safetensors  # pylint: disable=import-outside-toplevel

    (folder / "recipe.yaml").write_text(json.dumps(recipe))  # JSON is YAML
    done = subprocess.run([str(Path(options.training).resolve()), "recipe.yaml", "."], cwd=folder, capture_output=True,
                          text=True, check=False, env={**os.environ, "XDG_CACHE_HOME": str(folder)})
    if done.returncode:
        sys.exit(f"curves: {done.stderr.strip()}")
    return [json.loads(line) for line in done.stdout.splitlines()], read_safetensors(folder / "first.safetensors")


def theirs(options, recipe, steps, first, autocast):
    import torch  # pylint: disable=import-outside-toplevel
    from decoders import Training  # pylint: disable=import-outside-toplevel

    torch.set_default_device(options.device)
    torch.backends.cuda.matmul.allow_tf32 = False
    oracle = Training(recipe, {name: weight.to(options.device) for name, weight in first.items()})
    losses = []
    for step in steps:
        with torch.autocast(options.device, torch.bfloat16, enabled=autocast):
            loss, _ = oracle.step(torch.tensor(step["tokens"]), torch.tensor(step["targets"]))
        losses.append(loss)
    return losses


def draw(curves):
    """An SVG of the curves, the axes from the data."""
    width, height, left, below = 720, 360, 56, 36
    every = [loss for losses in curves.values() for loss in losses]
    low, high, count = min(every), max(every), max(2, len(next(iter(curves.values()))))

    def place(step, loss):
        return (f"{left + (width - left - 12) * step / (count - 1):.1f},"
                f"{12 + (height - below - 12) * (high - loss) / (high - low or 1):.1f}")

    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" '
             'font-size="12"><rect width="100%" height="100%" fill="white"/>']
    for share in (0, 0.25, 0.5, 0.75, 1):
        loss = low + share * (high - low)
        y = place(0, loss).split(",")[1]
        lines.append(f'<text x="{left - 8}" y="{y}" text-anchor="end" dominant-baseline="middle">{loss:.2f}</text>'
                     f'<line x1="{left}" x2="{width - 12}" y1="{y}" y2="{y}" stroke="#ddd"/>')
    for number, ((name, losses), colour) in enumerate(zip(curves.items(), ("#1f77b4", "#ff7f0e", "#2ca02c"))):
        points = " ".join(place(step, loss) for step, loss in enumerate(losses))
        lines.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.5"/>'
                     f'<text x="{width - 180}" y="{28 + 18 * number}" fill="{colour}">{name}</text>')
    lines.append(f'<text x="{left}" y="{height - 10}">loss in nats a token, step 1 to {count}</text></svg>')
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--training", required=True, help="the program tests/parity/parity_training")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--out", type=Path, default=Path("."))
    options = parser.parse_args()
    import torch  # pylint: disable=import-outside-toplevel

    if options.device == "cuda" and not torch.cuda.is_available():
        print("bench/gpu: skipped, PyTorch finds no GPU")
        return 77
    recipe = recipe_of(options)
    with tempfile.TemporaryDirectory() as folder:
        steps, first = ours(options, recipe, Path(folder))
    curves = {"Strata, bf16": [step["loss"] for step in steps],
              "PyTorch, bf16": theirs(options, recipe, steps, first, autocast=True),
              "PyTorch, fp32": theirs(options, recipe, steps, first, autocast=False)}

    def farthest(a, b):
        return max(abs(x - y) / y for x, y in zip(curves[a], curves[b]))

    print("step  " + "".join(f"{name:>16}" for name in curves))
    for step in sorted({0, *range(9, options.steps, max(10, options.steps // 10)), options.steps - 1}):
        if step < len(steps):
            print(f"{step + 1:4}  " + "".join(f"{losses[step]:16.4f}" for losses in curves.values()))
    own = farthest("PyTorch, bf16", "PyTorch, fp32")
    apart = farthest("Strata, bf16", "PyTorch, fp32")
    print(f"largest relative distance from PyTorch in fp32: Strata {apart:.2e}, PyTorch in bf16 {own:.2e}")
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "curves.json").write_text(json.dumps({"recipe": recipe, "losses": curves}, indent=1) + "\n")
    (options.out / "curves.svg").write_text(draw(curves))
    return 0 if apart <= max(TOLERANCE, 2 * own) else 1


if __name__ == "__main__":
    sys.exit(main())
