#!/usr/bin/env python3
"""Trains a task of this bench with PyTorch alone until its target, and writes the run as `strata train --run-json` does.

    torch_peer.py gpt|fashion --target NAME<=VALUE --seed N --out run.json [--compile]

The clock starts before the data are read; importing PyTorch does not count. Model, optimizer, learning rate, mini-batches and
validations are those of the recipes; the order of samples, the same in every epoch, and the first weights are PyTorch's.
"""

import argparse
import json
import math
import struct
import sys
import time
from pathlib import Path

import torch
import torch.nn.functional as F

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "examples/vision")]
from sizes import Sizes  # noqa: E402
from small_resnet import small_resnet  # noqa: E402
from torch_gpt import Stage, weight_groups  # noqa: E402


def rate(step, steps, warmup, peak):
    """Warm-up, then a cosine to a tenth."""
    if step < warmup:
        return peak * (step + 1) / warmup
    return peak * (0.1 + 0.45 * (1 + math.cos(math.pi * (step - warmup) / (steps - warmup))))


class Gpt:
    steps, warmup, peak, every, betas = 400, 60, 4e-3, 20, (0.9, 0.95)

    def __init__(self):
        text = torch.frombuffer(bytearray((ROOT / "data/kjv.txt").read_bytes()), dtype=torch.uint8).long()
        windows = text[: len(text) // 64 * 64 - 64]
        self.x, self.y = windows.view(-1, 64), text[1: len(windows) + 1].view(-1, 64)
        held = round(0.05 * len(self.x))
        self.train, self.held = len(self.x) - held, min(256, held)
        self.model = Stage(Sizes(layers=4, width=160, heads=5, context=64), 0, 4)
        self.decay = 0.1
        self.order = torch.randperm(self.train)

    def loss(self, model, step):
        index = self.order[(step * 32 + torch.arange(32)) % self.train]
        return F.cross_entropy(model(self.x[index]).flatten(0, 1), self.y[index].flatten())

    def quality(self, model):
        losses = [F.cross_entropy(model(self.x[first:first + 32]).flatten(0, 1), self.y[first:first + 32].flatten())
                  for first in range(self.train, self.train + self.held, 32)]
        return {"val_loss": torch.stack(losses).mean().item()}


class Fashion:
    steps, warmup, peak, every, betas = 900, 50, 4e-3, 50, (0.9, 0.95)

    def __init__(self):
        self.x, self.y = self.read("train")
        self.held_x, self.held_y = (part[:2000] for part in self.read("t10k"))
        self.train = len(self.x)
        self.model = small_resnet()
        self.decay = 0.02
        self.order = torch.randperm(self.train)

    @staticmethod
    def read(name):
        images = (ROOT / f"data/fashion/{name}-images-idx3-ubyte").read_bytes()
        labels = (ROOT / f"data/fashion/{name}-labels-idx1-ubyte").read_bytes()
        count = struct.unpack(">i", images[4:8])[0]
        pixels = torch.frombuffer(bytearray(images[16:]), dtype=torch.uint8).view(count, 1, 28, 28)
        return pixels, torch.frombuffer(bytearray(labels[8:]), dtype=torch.uint8).long()

    @staticmethod
    def scaled(pixels):
        return pixels.float() * 0.0111 - 0.81

    def loss(self, model, step):
        index = self.order[(step * 128 + torch.arange(128)) % self.train]
        return F.cross_entropy(model(self.scaled(self.x[index])), self.y[index])

    def quality(self, model):
        right, loss = 0, 0.0
        for first in range(0, len(self.held_x), 128):
            y = self.held_y[first:first + 128]
            scores = model(self.scaled(self.held_x[first:first + 128]))
            right += (scores.argmax(1) == y).sum().item()
            loss += F.cross_entropy(scores, y, reduction="sum").item()
        return {"val_loss": loss / len(self.held_x), "accuracy": right / len(self.held_x)}


def train(options):
    begin = time.time()
    torch.manual_seed(options.seed)
    torch.set_num_threads(2)
    task = {"gpt": Gpt, "fashion": Fashion}[options.task]()
    groups = weight_groups(task.model)
    groups[0]["weight_decay"] = task.decay
    optimizer = torch.optim.AdamW(groups, lr=task.peak, betas=task.betas, fused=True)
    model = torch.compile(task.model) if options.compile else task.model
    at_most = "<=" in options.target
    name, value = options.target.split("<=" if at_most else ">=")
    run = {"format": "strata run 1", "status": "missed", "target": options.target, "seconds": 0.0, "title": f"PyTorch, {options.task}",
           "version": torch.__version__, "machine": "", "ranks": 1, "seed": options.seed, "restarts": 0, "began_milliseconds": int(begin * 1000),
           "median_step_seconds": 0.0, "joules": None, "validations": [], "recipe": ""}
    seconds = []
    for step in range(task.steps):
        step_begin = time.time()
        for group in optimizer.param_groups:
            group["lr"] = rate(step, task.steps, task.warmup, task.peak)
        task.loss(model, step).backward()
        torch.nn.utils.clip_grad_norm_(task.model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        seconds.append(time.time() - step_begin)
        if (step + 1) % task.every:
            continue
        model.eval()
        with torch.no_grad():
            found = task.quality(model)
        model.train()
        run["seconds"] = time.time() - begin
        run["validations"].append({"step": step + 1, "samples": 0, "seconds": run["seconds"], "val_loss": found["val_loss"],
                                   "metrics": {key: each for key, each in found.items() if key != "val_loss"}})
        if (found[name] <= float(value)) if at_most else (found[name] >= float(value)):
            run["status"] = "reached"
            break
    run["median_step_seconds"] = sorted(seconds)[len(seconds) // 2]
    Path(options.out).write_text(json.dumps(run))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("task", choices=["gpt", "fashion"])
    parser.add_argument("--target", required=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", required=True)
    parser.add_argument("--compile", action="store_true")
    train(parser.parse_args())
