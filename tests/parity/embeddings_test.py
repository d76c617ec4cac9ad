"""Compares the losses of a recommender, rows and net, with plain PyTorch: tables as matrices under
autograd, Adagrad, SGD, and older copies of the tables for stale rows.
"""

import json
import math
import os
import pathlib
import random
import subprocess
import tempfile
import unittest

from oracle import skip

try:
    import torch
except ImportError as error:
    skip(f"PyTorch is not installed ({error})")
from torch.nn import functional

from decoders import read_safetensors
from recommender_test import KINDS

torch.set_num_threads(1)

STEPS, BATCH, WIDTH, RATE, ROW_RATE = 20, 32, 4, 0.1, 0.1
MODEL = {"bottom": [8, WIDTH], "top": [8]}
RECIPE = """
model: {{kind: dlrm, bottom: [8, 4], top: [8]}}
data:
  train: {log}
  label: click
  numeric: [{{name: a, transform: none}}, {{name: b, transform: none}}]
  categorical: [{{name: user, width: 4}}, {{name: words, width: 4, pool: mean, separator: ' '}}]
  shuffle: false
  validation_fraction: 0
embedding: {{init: {{kind: zeros}}, optimizer: {{kind: adagrad, learning_rate: 0.1, initial_accumulator: 0.1}}}}
train: {{mini_batch: 32, micro_batch: 32, clip: 0, decay: constant,
         optimizer: {{kind: sgd, learning_rate: 0.1, momentum: 0, weight_decay: 0}}}}
mesh: {{threads: 1}}
"""


def samples():
    """Label, numbers, user, words; words may be empty or repeated."""
    draw = random.Random(5)
    for _ in range(STEPS * BATCH):
        words = [draw.randrange(30) for _ in range(draw.randrange(4))]
        yield draw.randrange(2), (round(draw.gauss(0, 1), 3), round(draw.gauss(0, 1), 3)), draw.randrange(20), words


def strata(folder, *arguments):
    environment = dict(os.environ, XDG_CACHE_HOME=str(folder / "cache"))
    done = subprocess.run([os.environ["STRATA_PROGRAM"], *map(str, arguments)], env=environment,
                          capture_output=True, text=True)
    if done.returncode != 0:
        raise AssertionError(done.stderr)


class Tables:
    """One matrix per feature; step t reads the copy of its staleness."""

    def __init__(self, staleness):
        self.versions = [[torch.zeros(20, WIDTH), torch.zeros(30, WIDTH)]]
        self.squares = [torch.full((20, WIDTH), 0.1), torch.full((30, WIDTH), 0.1)]
        self.staleness = staleness

    def read(self, step):
        version = self.versions[max(0, step - self.staleness + 1)]
        return [table.clone().requires_grad_() for table in version]

    def update(self, read):
        now = []
        for table, square, stale in zip(self.versions[-1], self.squares, read):
            square += stale.grad ** 2
            now.append(table - ROW_RATE * stale.grad / (square.sqrt() + 1e-10))
        self.versions.append(now)


def pooled(tables, batch):
    users = tables[0][torch.tensor([user for _, _, user, _ in batch])]
    words = [tables[1][torch.tensor(ids)].mean(0) if ids else torch.zeros(WIDTH) for *_, ids in batch]
    return torch.cat([users, torch.stack(words)], 1)


def torch_losses(weights, log, staleness):
    net = KINDS["dlrm"]({"model": MODEL, "numeric": 2, "row_widths": [WIDTH, WIDTH]})
    net.load(weights)
    optimizer = torch.optim.SGD(net.parameters(), lr=RATE)
    tables, losses = Tables(staleness), []
    for step in range(STEPS):
        batch = log[step * BATCH:(step + 1) * BATCH]
        labels = torch.tensor([float(label) for label, *_ in batch])
        read = tables.read(step)
        scores = net(torch.tensor([numbers for _, numbers, *_ in batch]), pooled(read, batch))
        loss = functional.binary_cross_entropy_with_logits(scores, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        tables.update(read)
        losses.append(loss.item())
    return losses


class EmbeddingParity(unittest.TestCase):
    def test_training_matches_losses_of_pytorch(self):
        log = list(samples())
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            lines = ["click\ta\tb\tuser\twords"]
            lines += [f"{label}\t{a}\t{b}\tu{user}\t{' '.join(f'w{word}' for word in words)}"
                      for label, (a, b), user, words in log]
            (folder / "log.tsv").write_text("\n".join(lines) + "\n")
            recipe = folder / "recipe.yaml"
            recipe.write_text(RECIPE.format(log=folder / "log.tsv"))
            # A step without a change, so that a checkpoint contains the first weights.
            strata(folder, "train", recipe, "--set", "train.steps=1", "--set", "train.optimizer.learning_rate=0",
                   "--set", f"train.checkpoint_folder={folder / 'first'}")
            weights = read_safetensors(folder / "first/step-00000001/model.safetensors")
            for staleness in (1, 4):
                ours = []
                strata(folder, "train", recipe, "--set", f"train.steps={STEPS}", "--set",
                       f"embedding.staleness={staleness}", "--metrics", folder / f"metrics{staleness}")
                for line in (folder / f"metrics{staleness}").read_text().splitlines():
                    ours.append(json.loads(line)["loss"])
                theirs = torch_losses(weights, log, staleness)
                self.assertEqual(len(ours), STEPS)
                for step, (a, b) in enumerate(zip(ours, theirs)):
                    self.assertTrue(math.isclose(a, b, abs_tol=3e-6), f"staleness {staleness}, step {step}: {a} {b}")


if __name__ == "__main__":
    unittest.main()
