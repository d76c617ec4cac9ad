"""Recommenders give the losses, gradients, weights and scores of the same nets in plain PyTorch.

The nets are written from the papers, with torch.nn alone; only the names of weights are ours.
"""

import json
import os
import pathlib
import subprocess
import tempfile
import unittest

from oracle import skip

try:
    import torch
except ImportError as error:
    skip(f"PyTorch is not installed ({error})")
from torch import nn
from torch.nn import functional

from decoders import read_safetensors

torch.set_num_threads(1)

LOSS, GRADIENT, WEIGHT, SCORE = 2e-6, 1e-6, 5e-6, 5e-5
RATE, STEPS = 0.2, 6


class Hidden(nn.Module):
    def __init__(self, width_in, width_out, norm, relu):
        super().__init__()
        self.linear = nn.Linear(width_in, width_out)
        self.norm = nn.BatchNorm1d(width_out) if norm else None
        self.relu = relu

    def forward(self, x):
        x = self.linear(x)
        if self.norm:
            x = self.norm(x)
        return functional.relu(x) if self.relu else x

    def named(self, prefix):
        tensors = {prefix + "weight": self.linear.weight, prefix + "bias": self.linear.bias}
        if self.norm:
            tensors.update({prefix + "norm.weight": self.norm.weight,
                            prefix + "norm.bias": self.norm.bias,
                            prefix + "norm.running_mean": self.norm.running_mean,
                            prefix + "norm.running_var": self.norm.running_var})
        return tensors


class Net(nn.Module):
    """Hidden layers of the top and the score; what stands below is the kinds' own."""

    def __init__(self, case):
        super().__init__()
        self.case, model = case, case["model"]
        self.relu = model.get("activation", "relu") == "relu"
        self.place = model.get("batch_norm", "none")
        self.rows = sum(case["row_widths"])

    def hidden(self, width_in, widths, norm):
        sizes = [width_in, *widths]
        return nn.ModuleList(Hidden(a, b, norm, self.relu) for a, b in zip(sizes, sizes[1:]))

    def make_top(self, width, score_width=None):
        widths = self.case["model"]["top"]
        self.top = self.hidden(width, widths, self.place == "all")
        last = widths[-1] if widths else width
        self.head = nn.Linear(score_width or last, 1)

    def named(self):
        tensors = {"head.weight": self.head.weight, "head.bias": self.head.bias}
        for i, layer in enumerate(self.top):
            tensors.update(layer.named(f"top{i}."))
        return tensors

    def load(self, weights):
        ours = self.named()
        assert set(ours) == set(weights), set(ours) ^ set(weights)
        with torch.no_grad():
            for name, tensor in ours.items():
                tensor.copy_(weights[name])


class Dlrm(Net):
    def __init__(self, case):
        super().__init__(case)
        numeric, bottom = case["numeric"], case["model"]["bottom"]
        self.width = bottom[-1] if numeric else min(case["row_widths"])
        self.bottom = self.hidden(numeric, bottom if numeric else [], self.place != "none")
        vectors = self.rows // self.width + (1 if numeric else 0)
        self.cat = case["model"].get("interaction") == "cat"
        below = self.width if numeric else 0
        self.make_top(below + (self.rows if self.cat else vectors * (vectors - 1) // 2))

    def forward(self, numeric, rows):
        parts = []
        if self.case["numeric"]:
            for layer in self.bottom:
                numeric = layer(numeric)
            parts = [numeric]
        if self.cat:
            x = torch.cat([*parts, rows], 1)
        else:
            vectors = torch.cat([*parts, rows], 1).reshape(len(rows), -1, self.width)
            products = vectors @ vectors.transpose(1, 2)
            i, j = torch.tril_indices(vectors.size(1), vectors.size(1), -1)
            x = torch.cat([*parts, products[:, i, j]], 1)
        for layer in self.top:
            x = layer(x)
        return self.head(x).squeeze(1)

    def named(self):
        tensors = super().named()
        for i, layer in enumerate(self.bottom):
            tensors.update(layer.named(f"bottom{i}."))
        return tensors


class Dcn(Net):
    def __init__(self, case):
        super().__init__(case)
        model = case["model"]
        width, self.rank = case["numeric"] + self.rows, model.get("rank", 0)
        count = model.get("cross_layers", 3)
        if self.rank:
            self.down = nn.ModuleList(nn.Linear(width, self.rank, bias=False) for _ in range(count))
        self.up = nn.ModuleList(nn.Linear(self.rank or width, width) for _ in range(count))
        self.parallel = model.get("interaction") == "parallel"
        deep = model["top"][-1] if model["top"] else width
        self.make_top(width, width + deep if self.parallel else None)

    def forward(self, numeric, rows):
        x0 = torch.cat([numeric, rows], 1) if self.case["numeric"] else rows
        x = x0
        for i, up in enumerate(self.up):
            x = x0 * up(self.down[i](x) if self.rank else x) + x
        deep = x0 if self.parallel else x
        for layer in self.top:
            deep = layer(deep)
        return self.head(torch.cat([x, deep], 1) if self.parallel else deep).squeeze(1)

    def named(self):
        tensors = super().named()
        for i, up in enumerate(self.up):
            name = "up.weight" if self.rank else "weight"
            tensors.update({f"cross{i}.{name}": up.weight, f"cross{i}.bias": up.bias})
            if self.rank:
                tensors[f"cross{i}.down.weight"] = self.down[i].weight
        return tensors


class DeepWide(Net):
    def __init__(self, case):
        super().__init__(case)
        numeric, bottom, norm = case["numeric"], case["model"]["bottom"], self.place != "none"
        self.of_rows = Hidden(self.rows, bottom[-1], norm, self.relu)
        self.of_numeric = Hidden(numeric, bottom[0], norm, self.relu) if numeric else None
        self.wide = case["model"].get("wide", True)
        if self.wide:
            self.wide_rows = nn.Linear(self.rows, 1, bias=False)
            self.wide_numeric = nn.Linear(numeric, 1, bias=False) if numeric else None
        self.make_top(sum(bottom))

    def forward(self, numeric, rows):
        x = self.of_rows(rows)
        if self.of_numeric:
            x = torch.cat([self.of_numeric(numeric), x], 1)
        for layer in self.top:
            x = layer(x)
        score = self.head(x)
        if self.wide:
            score = score + self.wide_rows(rows)
            if self.of_numeric:
                score = score + self.wide_numeric(numeric)
        return score.squeeze(1)

    def named(self):
        tensors = {**super().named(), **self.of_rows.named("input.rows.")}
        if self.of_numeric:
            tensors.update(self.of_numeric.named("input.numeric."))
        if self.wide:
            tensors["input.wide.rows.weight"] = self.wide_rows.weight
            if self.of_numeric:
                tensors["input.wide.numeric.weight"] = self.wide_numeric.weight
        return tensors


KINDS = {"dlrm": Dlrm, "dcn": Dcn, "deep_wide": DeepWide}


class Training:
    """Micro-batches one after the other; running statistics move by the mean of theirs."""

    def __init__(self, net, micro_batch, replicas):
        self.net, self.micro_batch, self.replicas = net, micro_batch, replicas
        self.norms = [module for module in net.modules() if isinstance(module, nn.BatchNorm1d)]
        self.optimizer = torch.optim.SGD(net.parameters(), lr=RATE)

    def gradients(self, batch):
        """Loss, gradient at the rows; the parameters have theirs."""
        self.optimizer.zero_grad()
        numeric, labels = batch["numeric"], batch["labels"]
        rows = batch["rows"].clone().requires_grad_(True)
        valid, total = labels.ge(0), 0.0
        before = [(norm.running_mean.clone(), norm.running_var.clone()) for norm in self.norms]
        sums = [[torch.zeros_like(a), torch.zeros_like(b)] for a, b in before]
        pieces = [piece for part in torch.arange(len(labels)).chunk(self.replicas)
                  for piece in part.split(self.micro_batch)]
        for piece in pieces:
            for norm in self.norms:
                norm.momentum = 1.0
            scores = self.net(numeric[piece], rows[piece])
            losses = functional.binary_cross_entropy_with_logits(
                scores, labels[piece].clamp(min=0), reduction="none")
            loss = losses[valid[piece]].sum() / valid.sum()
            if valid[piece].any():
                loss.backward()
            total += loss.item()
            for norm, sum_ in zip(self.norms, sums):
                sum_[0] += norm.running_mean / len(pieces)
                sum_[1] += norm.running_var / len(pieces)
        self.statistics = [(0.9 * old[0] + 0.1 * new[0], 0.9 * old[1] + 0.1 * new[1])
                           for old, new in zip(before, sums)]
        for norm, (mean, variance) in zip(self.norms, before):
            norm.running_mean.copy_(mean)
            norm.running_var.copy_(variance)
        return total, rows.grad

    def step(self, batch):
        loss, _ = self.gradients(batch)
        norm = torch.sqrt(sum(weight.grad.double().square().sum()
                              for weight in self.net.parameters())).item()
        self.optimizer.step()
        for module, (mean, variance) in zip(self.norms, self.statistics):
            module.running_mean.copy_(mean)
            module.running_var.copy_(variance)
        return loss, norm


def case_of(kind, bottom=(), top=(24, 12), numeric=5, row_widths=(8, 8, 16, 8), mini_batch=48,
            micro_batch=48, mesh=None, recompute=False, **model):
    return dict(model=dict(model, kind=kind, bottom=list(bottom), top=list(top)), numeric=numeric,
                row_widths=list(row_widths), mini_batch=mini_batch, micro_batch=micro_batch,
                mesh=mesh or {}, recompute=recompute, learning_rate=RATE)


def batch_of(case, samples, generator):
    labels = torch.rand(samples, generator=generator).lt(0.3).float()
    labels[1] = -100.0
    return dict(numeric=torch.randn(samples, case["numeric"], generator=generator),
                rows=torch.randn(samples, sum(case["row_widths"]), generator=generator),
                labels=labels)


class Recommenders(unittest.TestCase):
    def ours(self, case, steps, evaluate):
        def plain(batch):
            return {name: tensor.tolist() for name, tensor in batch.items()}
        given = dict(case, steps=[plain(step) for step in steps], evaluate=plain(evaluate))
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run([os.environ["PARITY_RECOMMENDER"], folder],
                                  input=json.dumps(given), capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)
            files = {name: read_safetensors(pathlib.Path(folder) / f"{name}.safetensors")
                     for name in ("first", "last", "gradients", "scores")}
        return [json.loads(line) for line in done.stdout.splitlines()], files

    def expect_near(self, ours, theirs, tolerance, what):
        self.assertEqual(ours.shape, theirs.shape, what)
        scale = max(1.0, theirs.abs().max().item())
        self.assertLessEqual((ours - theirs).abs().max().item() / scale, tolerance, what)

    def check(self, kind, **fields):
        case = case_of(kind, **fields)
        generator = torch.Generator().manual_seed(5)
        steps = [batch_of(case, case["mini_batch"], generator) for _ in range(STEPS)]
        evaluate = batch_of(case, 30, generator)
        lines, files = self.ours(case, steps, evaluate)

        net = KINDS[kind](case)
        net.load(files["first"])
        training = Training(net, case["micro_batch"], case["mesh"].get("dp", 1))
        _, rows = training.gradients(steps[0])
        self.assertGreater(rows.abs().max().item(), 1e-4)
        self.expect_near(files["gradients"].pop("rows"), rows, GRADIENT, "rows")
        names = {name: tensor for name, tensor in net.named().items() if "running" not in name}
        self.assertEqual(set(files["gradients"]), set(names))
        for name, weight in names.items():
            self.expect_near(files["gradients"][name], weight.grad, GRADIENT, name)

        self.assertEqual(len(lines), STEPS)
        for number, (step, line) in enumerate(zip(steps, lines)):
            loss, norm = training.step(step)
            self.assertLessEqual(abs(line["loss"] - loss), LOSS * loss, f"step {number}")
            self.assertLessEqual(abs(line["gradient_norm"] - norm), 1e-5 * norm, f"step {number}")
        moved = 0
        for name, tensor in net.named().items():
            self.expect_near(files["last"][name], tensor, WEIGHT, name)
            moved += int((tensor - files["first"][name]).abs().max() > 1e-4)
        # All but biases in front of a norm, which it takes away.
        self.assertGreaterEqual(moved, len(net.named()) * 0.7)
        net.eval()
        with torch.no_grad():
            scores = net(evaluate["numeric"], evaluate["rows"])
        self.expect_near(files["scores"]["scores"], scores, SCORE, "scores")

    def test_dlrm(self):
        for fields in (dict(bottom=[16, 8]),
                       dict(bottom=[16, 8], batch_norm="all"),
                       dict(bottom=[8], batch_norm="bottom", micro_batch=7, recompute=True),
                       dict(bottom=[16, 8], mesh=dict(pp=3, dp=2), micro_batch=12,
                            batch_norm="all"),
                       dict(numeric=0, row_widths=[6, 6, 6], top=[]),
                       dict(bottom=[7], interaction="cat", row_widths=[3, 10]),
                       dict(numeric=0, interaction="cat", row_widths=[3, 10]),
                       dict(bottom=[64, 16], row_widths=[16] * 26, top=[64, 32])):
            with self.subTest(fields):
                self.check("dlrm", **fields)

    def test_dcn(self):
        for fields in (dict(), dict(batch_norm="all", interaction="parallel"),
                       dict(rank=6, cross_layers=2, mesh=dict(pp=2, dp=2), micro_batch=6),
                       dict(rank=3, interaction="parallel", recompute=True, micro_batch=16,
                            mesh=dict(pp=4)),
                       dict(numeric=0, cross_layers=1, top=[]),
                       dict(interaction="parallel", top=[], activation="none")):
            with self.subTest(fields):
                self.check("dcn", **fields)

    def test_deep_wide(self):
        for fields in (dict(bottom=[6, 20]),
                       dict(bottom=[6, 20], batch_norm="all", micro_batch=9, recompute=True),
                       dict(bottom=[20], numeric=0, batch_norm="bottom", mesh=dict(pp=2)),
                       dict(bottom=[6, 20], wide=False, mesh=dict(dp=2), micro_batch=10),
                       # PERSIA's net for Adult
                       dict(bottom=[16, 128], top=[256, 128], row_widths=[8] * 8, wide=False,
                            batch_norm="bottom", activation="none", mini_batch=128,
                            micro_batch=128)):
            with self.subTest(fields):
                self.check("deep_wide", **fields)


if __name__ == "__main__":
    unittest.main()
