"""Compares the losses of training on a GPU with those of PyTorch on the same GPU.

A GPT of GPT-2's shape (width 768, 12 heads, 50,304 classes), fewer layers and shorter texts, 20
steps with all settings of training_test.py. Skipped if PyTorch or this build of Strata has no GPU.
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
import training_test
from decoders import Training

GPT2 = dict(kind="gpt", layers=3, width=768, heads=12, vocab=50304, context=128, dropout=0.0, tie=True)
TRAIN = dict(training_test.TRAIN, optimizer=dict(training_test.TRAIN["optimizer"], learning_rate=1e-3))
# Relative errors. fp32: other orders of sums, 20 steps; bf16: compared with PyTorch in fp32.
LOSS = {"fp32": 1e-4, "bf16": 2e-2}
NORM = {"fp32": 1e-3, "bf16": 5e-2}


def recipe(precision):
    return dict(model=GPT2, train=dict(TRAIN, precision=precision), mesh=dict(device="cuda", threads=1),
                data=dict(train="text.txt", tokenizer="bytes", validation_fraction=0.25))


def why_none():
    if not torch.cuda.is_available():
        return "PyTorch sees no GPU"
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "text.txt").write_bytes(training_test.text())
        (folder / "recipe.yaml").write_text(json.dumps(recipe("fp32")))
        environment = dict(os.environ, XDG_CACHE_HOME=str(folder / "cache"))
        done = subprocess.run([os.environ["STRATA_PROGRAM"], "plan", "recipe.yaml"],
                              cwd=folder, env=environment, capture_output=True, text=True)
    # The test reports any other failure.
    return "this build of Strata has no GPU" if "this build has no CUDA" in done.stderr else ""


class OnAGpu(training_test.TrainingTest):
    def check(self, precision):
        self.write(recipe(precision))
        steps, first, _ = self.train_ours()
        self.assertEqual(len(steps), TRAIN["steps"])
        torch.set_default_device("cuda")
        self.addCleanup(torch.set_default_device, "cpu")
        oracle = Training(recipe(precision), first)
        for number, step in enumerate(steps, 1):
            loss, norm = oracle.step(torch.tensor(step["tokens"]), torch.tensor(step["targets"]))
            self.expect_near(step["loss"], loss, LOSS[precision], f"loss of step {number}")
            self.expect_near(step["gradient_norm"], norm, NORM[precision], f"norm of step {number}")
        self.assertLess(steps[-1]["loss"], steps[0]["loss"] - 1)  # it learned

    def test_fp32(self):
        self.check("fp32")

    def test_bf16(self):
        self.check("bf16")


if __name__ == "__main__":
    if reason := why_none():
        skip(reason)
    torch.backends.cuda.matmul.allow_tf32 = False
    unittest.main()
