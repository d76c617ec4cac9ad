"""The tasks of this bench in PyTorch alone: data, model, optimizers, mini-batches and validations of the recipes.

A task reads its data when it is made. The order of samples, the same in every epoch, and the first weights are PyTorch's.
"""

import csv
import math
import struct
import sys
from pathlib import Path

import numpy
import torch
import torch.nn.functional as F
from torch import nn

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "bench/recommender_quality"), str(ROOT / "examples/vision"),
                str(ROOT / "tests/parity")]
from peer import quality as click_quality  # noqa: E402
from recommender_nets import KINDS  # noqa: E402
from sizes import Sizes  # noqa: E402
from small_resnet import small_resnet  # noqa: E402
from torch_gpt import Stage, weight_groups  # noqa: E402


def cosine(step, steps, warmup, peak):
    """Warm-up, then a cosine to a tenth."""
    if step < warmup:
        return peak * (step + 1) / warmup
    return peak * (0.1 + 0.45 * (1 + math.cos(math.pi * (step - warmup) / (steps - warmup))))


def adamw(model, decay):
    groups = weight_groups(model)
    groups[0]["weight_decay"] = decay
    return groups


class Gpt:
    steps, warmup, peak, every, decay = 400, 60, 4e-3, 20, 0.1
    sizes = Sizes(layers=4, width=160, heads=5, context=64)
    betas = (0.9, 0.95)

    def __init__(self):
        text = torch.frombuffer(bytearray((ROOT / "data/kjv.txt").read_bytes()), dtype=torch.uint8).long()
        windows = text[: len(text) // 64 * 64 - 64]
        self.x, self.y = windows.view(-1, 64), text[1: len(windows) + 1].view(-1, 64)
        held = round(0.05 * len(self.x))
        self.train, self.held = len(self.x) - held, min(256, held)
        self.order = torch.randperm(self.train)

    def parts(self, count):
        bounds = [self.sizes.layers * i // count for i in range(count + 1)]
        return [Stage(self.sizes, a, b) for a, b in zip(bounds, bounds[1:])]

    def batch(self, step):
        index = self.order[(step * 32 + torch.arange(32)) % self.train]
        return (self.x[index],), self.y[index]

    @staticmethod
    def loss(outputs, targets):
        return F.cross_entropy(outputs.flatten(0, 1), targets.flatten())

    def held_batches(self):
        for first in range(self.train, self.train + self.held, 32):
            yield (self.x[first:first + 32],), self.y[first:first + 32]

    def quality(self, outputs, targets):
        return {"val_loss": torch.stack([self.loss(o, t) for o, t in zip(outputs, targets)]).mean().item()}


class Fashion:
    steps, warmup, peak, every, decay = 900, 50, 4e-3, 50, 0.02
    betas = (0.9, 0.95)

    def __init__(self):
        self.x, self.y = self.read("train")
        self.held_x, self.held_y = (part[:2000] for part in self.read("t10k"))
        self.order = torch.randperm(len(self.x))

    @staticmethod
    def read(name):
        images = (ROOT / f"data/fashion/{name}-images-idx3-ubyte").read_bytes()
        labels = (ROOT / f"data/fashion/{name}-labels-idx1-ubyte").read_bytes()
        count = struct.unpack(">i", images[4:8])[0]
        pixels = torch.frombuffer(bytearray(images[16:]), dtype=torch.uint8).view(count, 1, 28, 28)
        return pixels, torch.frombuffer(bytearray(labels[8:]), dtype=torch.uint8).long()

    def parts(self, count):
        whole = small_resnet()
        cut = 3  # the two halves take about the same time
        return [whole] if count == 1 else [whole[:cut], whole[cut:]]

    @staticmethod
    def scaled(pixels):
        return pixels.float() * 0.0111 - 0.81

    def batch(self, step):
        index = self.order[(step * 128 + torch.arange(128)) % len(self.x)]
        return (self.scaled(self.x[index]),), self.y[index]

    @staticmethod
    def loss(outputs, targets):
        return F.cross_entropy(outputs, targets)

    def held_batches(self):
        for first in range(0, len(self.held_x), 128):
            yield (self.scaled(self.held_x[first:first + 128]),), self.held_y[first:first + 128]

    def quality(self, outputs, targets):
        scores, labels = torch.cat(outputs), torch.cat(targets)
        return {"val_loss": self.loss(scores, labels).item(), "accuracy": (scores.argmax(1) == labels).float().mean().item()}


class Scores(nn.Module):
    """The net and one table for all features."""

    def __init__(self, rows, features, numbers):
        super().__init__()
        self.table = nn.Embedding(rows, 8)
        nn.init.uniform_(self.table.weight, -0.01, 0.01)
        self.net = KINDS["dcn"](dict(model={"kind": "dcn", "top": [128, 64]}, numeric=numbers, row_widths=[8] * features))

    def forward(self, numbers, ids):
        return self.net(numbers, self.table(ids).flatten(1))


class Adult:
    """recipes/adult-dcn.yaml without dropout."""

    steps, warmup, peak, every, decay = 763, 0, 1e-3, 50, 0.01
    betas = (0.9, 0.999)
    texts = ("workclass", "education", "marital_status", "occupation", "relationship", "race", "sex", "native_country")
    numbers = ("age", "education_num", "capital_gain", "capital_loss", "hours_per_week")
    ranges = (("age", 20), ("hours_per_week", 10))

    def __init__(self):
        train, held = (self.read(name) for name in ("train", "test"))
        raw = self.raw_numbers(train)
        self.mean, self.deviation = raw.mean(0), raw.std(0, correction=0)
        self.edges = [numpy.quantile(train[name].astype(float), numpy.arange(1, n) / n) for name, n in self.ranges]
        columns = self.texts + ("capital_gain", "capital_loss")
        self.vocabularies = {name: numpy.unique(train[name]) for name in columns}
        sizes = [len(texts) + 1 for texts in self.vocabularies.values()] + [n for _, n in self.ranges]
        self.first = torch.tensor([0, *sizes[:-1]]).cumsum(0)
        self.rows = sum(sizes)
        self.x, self.ids, self.y = self.tensors(train)
        self.held = self.tensors(held)
        self.order = torch.randperm(len(self.y))

    @staticmethod
    def read(name):
        """Texts by column."""
        with (ROOT / f"data/adult/{name}.csv").open(newline="") as file:
            names, *rows = csv.reader(file)
        return dict(zip(names, numpy.array(rows).T))

    def raw_numbers(self, columns):
        x = torch.from_numpy(numpy.stack([columns[name].astype(numpy.float32) for name in self.numbers], 1))
        x[:, 2:4] = x[:, 2:4].log1p()
        return x

    @staticmethod
    def places(texts, vocabulary):
        """Unknown texts share the place after the last."""
        at = numpy.searchsorted(vocabulary, texts)
        known = vocabulary[numpy.minimum(at, len(vocabulary) - 1)] == texts
        return numpy.where(known, at, len(vocabulary))

    def tensors(self, columns):
        x = self.raw_numbers(columns)
        scaled = (x - self.mean) / self.deviation
        scaled[:, 2:4] = x[:, 2:4]  # logarithms are read as they are
        ids = [self.places(columns[name], texts) for name, texts in self.vocabularies.items()]
        ids += [numpy.searchsorted(edges, columns[name].astype(float), side="right")
                for (name, _), edges in zip(self.ranges, self.edges)]
        labels = torch.from_numpy((columns["income"] == ">50K").astype(numpy.float32))
        return scaled, torch.from_numpy(numpy.stack(ids, 1)) + self.first, labels

    def parts(self, count):
        below = Scores(self.rows, len(self.first), len(self.numbers))
        if count == 1:
            return [below]
        net = below.net
        above = nn.Sequential(*net.top, net.head, nn.Flatten(0))
        net.top, net.head = nn.ModuleList(), nn.Identity()  # the first stage ends with the cross layers
        return [below, above]

    def optimizers(self, model):
        found = [torch.optim.AdamW(adamw(getattr(model, "net", model), self.decay), lr=self.peak, betas=self.betas, fused=True)]
        if hasattr(model, "table"):
            found.append(torch.optim.Adagrad(model.table.parameters(), lr=0.03, initial_accumulator_value=0.01, fused=True))
        return found

    def batch(self, step):
        index = self.order[(step * 256 + torch.arange(256)) % len(self.y)]
        return (self.x[index], self.ids[index]), self.y[index]

    @staticmethod
    def loss(outputs, targets):
        return F.binary_cross_entropy_with_logits(outputs, targets)

    def held_batches(self):
        x, ids, y = self.held
        for first in range(0, len(y), 4096):
            yield (x[first:first + 4096], ids[first:first + 4096]), y[first:first + 4096]

    def quality(self, outputs, targets):
        found = click_quality(torch.cat(outputs).double(), torch.cat(targets).double())
        return {"val_loss": found["log_loss"], "auc": found["auc"]}


TASKS = {"gpt": Gpt, "fashion": Fashion, "adult": Adult}


def optimizers_of(task, model):
    if hasattr(task, "optimizers"):
        return task.optimizers(model)
    return [torch.optim.AdamW(adamw(model, task.decay), lr=task.peak, betas=task.betas, fused=True)]


def set_rate(task, optimizers, step):
    """Of the net alone: a table's rate is constant."""
    for group in optimizers[0].param_groups:
        group["lr"] = cosine(step, task.steps, task.warmup, task.peak)
