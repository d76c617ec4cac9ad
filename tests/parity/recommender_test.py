"""Compares losses, gradients, weights and scores of recommenders with the same nets in plain
PyTorch.

The nets (recommender_nets.py) are written from the papers, with torch.nn alone.
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
from recommender_nets import KINDS

torch.set_num_threads(1)

# A norm over the three remaining samples of a micro-batch of 9 amplifies earlier rounding.
LOSS, GRADIENT, WEIGHT, SCORE = 2e-6, 3e-6, 5e-6, 5e-5
RATE, STEPS = 0.2, 6


class Training:
    """Runs micro-batches one after another; running statistics move once, towards those of the
    mini-batch."""

    def __init__(self, net, micro_batch, replicas):
        self.net, self.micro_batch, self.replicas = net, micro_batch, replicas
        self.norms = [module for module in net.modules() if isinstance(module, nn.BatchNorm1d)]
        self.optimizer = torch.optim.SGD(net.parameters(), lr=RATE)

    def gradients(self, batch):
        """Returns loss and gradient of the rows; parameters keep their gradients."""
        self.optimizer.zero_grad()
        numeric, labels = batch["numeric"], batch["labels"]
        rows = batch["rows"].clone().requires_grad_(True)
        valid, total = labels.ge(0), 0.0
        before = [(norm.running_mean.clone(), norm.running_var.clone()) for norm in self.norms]
        seen = [[] for _ in self.norms]
        hooks = [norm.register_forward_pre_hook(lambda _, inputs, own=own: own.append(inputs[0].detach()))
                 for norm, own in zip(self.norms, seen)]
        pieces = [piece for part in torch.arange(len(labels)).chunk(self.replicas)
                  for piece in part.split(self.micro_batch)]
        for piece in pieces:
            scores = self.net(numeric[piece], rows[piece])
            losses = functional.binary_cross_entropy_with_logits(
                scores, labels[piece].clamp(min=0), reduction="none")
            loss = losses[valid[piece]].sum() / valid.sum()
            if valid[piece].any():
                loss.backward()
            total += loss.item()
        for hook in hooks:
            hook.remove()
        self.statistics = []
        for norm, (mean, variance), own in zip(self.norms, before, seen):
            norm.running_mean.copy_(mean)
            norm.running_var.copy_(variance)
            whole = nn.BatchNorm1d(norm.num_features)
            whole.running_mean.copy_(mean)
            whole.running_var.copy_(variance)
            whole(torch.cat(own))
            self.statistics.append((whole.running_mean, whole.running_var))
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
        # All except biases before a norm, which removes them.
        self.assertGreaterEqual(moved, len(net.named()) * 0.7)
        net.eval()
        with torch.no_grad():
            scores = net(evaluate["numeric"], evaluate["rows"])
        self.expect_near(files["scores"]["scores"], scores, SCORE, "scores")

    def test_initial_values_match_ranges_of_pytorch(self):
        """Each weight's values against 40 nets of PyTorch: the largest value and the gap of
        Kolmogorov and Smirnov."""
        torch.manual_seed(1)
        for kind, fields in (("dlrm", dict(bottom=[48, 8], row_widths=[8] * 4, top=[64])),
                             ("dcn", dict(rank=6, top=[64])), ("dcn", dict(top=[64])),
                             ("deep_wide", dict(bottom=[16, 48], top=[64]))):
            case = case_of(kind, **fields)
            generator = torch.Generator().manual_seed(5)
            batch = batch_of(case, case["mini_batch"], generator)
            ours = self.ours(case, [batch], batch)[1]["first"]
            nets = [KINDS[kind](case).named() for _ in range(40)]
            for name, values in ours.items():
                with self.subTest(kind=kind, weight=name):
                    theirs = torch.cat([net[name].detach().flatten() for net in nets]).sort().values
                    values = values.flatten().sort().values
                    self.assertLessEqual(values.abs().max().item(), 1.01 * theirs.abs().max().item())
                    share = torch.searchsorted(theirs, values).double() / len(theirs)
                    even = (torch.arange(len(values)) + 0.5) / len(values)
                    gap = (share - even).abs().max().item()
                    self.assertLess(gap, 2.2 / len(values) ** 0.5 + 0.5 / len(values), name)

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
