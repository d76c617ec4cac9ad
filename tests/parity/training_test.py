"""Compares losses and weights of training with PyTorch, which trains the same model independently.

Includes every setting that changes them: warm-up and cosine, betas and epsilon, decay of matrices
only, clipping at every step, label smoothing, a tied weight, ignored targets, an uneven last
micro-batch. The equality tests elsewhere compare Strata with Strata, so they miss errors that one
rank and many share.
"""

import json
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
from decoders import Training, read_safetensors

torch.set_num_threads(1)

# The effect of rounding in 20 steps, times ten: losses and norms relative, weights absolute.
LOSS, NORM, WEIGHT = 5e-6, 1e-5, 5e-6

CONTEXT = 16
MODELS = {
    "gpt": dict(kind="gpt", layers=2, width=32, heads=4, vocab=256, context=CONTEXT, dropout=0.0,
                tie=True),
    "llama": dict(kind="llama", layers=2, width=32, heads=4, kv_heads=2, mlp_width=64, vocab=256,
                  context=CONTEXT, tie=False),
}
# Epsilon has the size of the clipped gradients: otherwise AdamW would hide a wrong scale of them.
TRAIN = dict(steps=20, mini_batch=6, micro_batch=2, warmup=4, decay="cosine", final_fraction=0.25,
             clip=0.3, label_smoothing=0.1, seed=7,
             optimizer=dict(kind="adamw", learning_rate=1e-2, beta1=0.8, beta2=0.9, epsilon=1e-3,
                            weight_decay=0.3))
MESHES = {"one rank": dict(pp=1, threads=1),
          "2 x 2 x 2": dict(pp=2, dp=2, tp=2, zero=3, schedule="1f1b", threads=1)}


def text():
    words = "in the beginning was word and with god all things were made by him light".split()
    draw = random.Random(1)
    return " ".join(draw.choice(words) for _ in range(1200)).encode()


class TrainingTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        (self.folder / "text.txt").write_bytes(text())

    def run_program(self, *command):
        environment = dict(os.environ, XDG_CACHE_HOME=str(self.folder / "cache"))
        done = subprocess.run([str(word) for word in command], cwd=self.folder, env=environment,
                              capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def recipe(self, kind, mesh, model=(), train=()):
        recipe = dict(model=dict(MODELS[kind], **dict(model)),
                      data=dict(train="text.txt", tokenizer="bytes", validation_fraction=0.25),
                      train=dict(TRAIN, **dict(train)), mesh=MESHES[mesh])
        return self.write(recipe)

    def write(self, recipe):
        """JSON is YAML."""
        (self.folder / "recipe.yaml").write_text(json.dumps(recipe))
        return recipe

    def train_ours(self, *overrides):
        """The steps of our trainer; weights before and after."""
        out = self.run_program(os.environ["PARITY_TRAINING"], "recipe.yaml", ".", *overrides)
        return ([json.loads(line) for line in out.splitlines()],
                read_safetensors(self.folder / "first.safetensors"),
                read_safetensors(self.folder / "last.safetensors"))

    def expect_near(self, ours, theirs, relative, what):
        self.assertLessEqual(abs(ours - theirs), relative * abs(theirs),
                             f"{what}: {ours} here, {theirs} by PyTorch")

    def expect_near_step(self, step, ours, loss, norm):
        self.expect_near(ours["loss"], loss, LOSS, f"loss of step {step}")
        self.expect_near(ours["gradient_norm"], norm, NORM, f"norm of step {step}")

    def expect_near_weights(self, ours, theirs):
        self.assertEqual(set(ours), set(theirs))
        for name, weight in theirs.items():
            difference = (ours[name] - weight).abs().max().item()
            self.assertLessEqual(difference, WEIGHT, name)


class EveryMesh:
    """The cases of both kinds of training; a subclass defines `check(kind, mesh)`."""

    def test_gpt_on_one_rank(self):
        self.check("gpt", "one rank")

    def test_gpt_on_eight_ranks(self):
        self.check("gpt", "2 x 2 x 2")

    def test_llama_on_one_rank(self):
        self.check("llama", "one rank")


class Trainer(EveryMesh, TrainingTest):
    """Batches with ignored targets, which no text has."""

    def check(self, kind, mesh):
        recipe = self.recipe(kind, mesh)
        steps, first, last = self.train_ours()
        self.assertEqual(len(steps), TRAIN["steps"])
        oracle = Training(recipe, first)
        for number, step in enumerate(steps, 1):
            targets = torch.tensor(step["targets"])
            self.assertTrue(0 < targets.lt(0).sum() < targets.numel() / 2)
            loss, norm = oracle.step(torch.tensor(step["tokens"]), targets)
            self.assertGreater(norm, TRAIN["clip"])
            self.expect_near_step(number, step, loss, norm)
        self.assertLess(steps[-1]["loss"], steps[0]["loss"] - 1)  # it learned
        self.expect_near_weights(last, oracle.weights())

    def test_llama_on_eight_ranks(self):
        self.check("llama", "2 x 2 x 2")


class Program(EveryMesh, TrainingTest):
    """`strata train`, from the recipe to the metrics."""

    def windows(self, first, count):
        """Window i of the text: `CONTEXT` tokens, and the same shifted by one."""
        tokens = torch.tensor(list((self.folder / "text.txt").read_bytes()))
        rows = [tokens[i * CONTEXT:(i + 1) * CONTEXT + 1] for i in range(first, first + count)]
        block = torch.stack(rows)
        return block[:, :-1], block[:, 1:]

    def validation_windows(self, count):
        windows = (len(text()) - 1) // CONTEXT
        held_out = int(0.25 * windows)
        return self.windows(windows - held_out, count)

    def train_program(self, *overrides):
        words = [word for field in overrides for word in ("--set", field)]
        self.run_program(os.environ["STRATA_PROGRAM"], "train", "recipe.yaml", "--metrics",
                         "metrics.jsonl", *words)
        lines = (self.folder / "metrics.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]

    def check(self, kind, mesh):
        # Seven validation samples: mini-batches of six and one.
        recipe = self.recipe(kind, mesh)
        _, first, _ = self.train_ours("train.steps=1")
        metrics = self.train_program("data.shuffle=false", "train.validate_every=10",
                                     "train.validation_samples=7")
        self.assertEqual([line["step"] for line in metrics], list(range(1, 21)))
        oracle = Training(recipe, first)
        samples = TRAIN["mini_batch"]
        for step, line in enumerate(metrics):
            loss, norm = oracle.step(*self.windows(step * samples, samples))
            self.expect_near_step(step + 1, line, loss, norm)
            rate = oracle.optimizer.param_groups[0]["lr"]
            self.expect_near(line["learning_rate"], rate, 1e-12, f"rate of step {step + 1}")
            self.assertEqual("validation_loss" in line, step + 1 == 10)
            if step + 1 == 10:
                with torch.no_grad():
                    loss = oracle.model.loss(*self.validation_windows(7)).item()
                self.expect_near(line["validation_loss"], loss, LOSS, "validation")

    def test_dropout_and_smoothing_affect_training_only(self):
        recipe = self.recipe("gpt", "one rank", {"dropout": 0.4},
                             {"optimizer": dict(TRAIN["optimizer"], learning_rate=0.0)})
        _, first, _ = self.train_ours("train.steps=1")
        lines = self.train_program("data.shuffle=false", "train.validate_every=1",
                                   "train.validation_samples=7", "train.steps=2")
        oracle = Training(recipe, first)
        with torch.no_grad():
            validation = oracle.model.loss(*self.validation_windows(7)).item()
            plain = oracle.model.loss(*self.windows(0, TRAIN["mini_batch"]),
                                      label_smoothing=TRAIN["label_smoothing"]).item()
        self.expect_near(lines[0]["validation_loss"], validation, LOSS, "validation")
        self.assertGreater(abs(lines[0]["loss"] - plain), 200 * LOSS * plain)  # dropout was on


if __name__ == "__main__":
    unittest.main()
