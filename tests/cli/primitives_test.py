"""Compares recipes trained with ATen's primitives (train.primitives: aten) with Strata's own on a
CPU.

Losses of every step agree within a relative 1e-6 in fp32 and 5e-4 in 16 bit; in fp32 only rounding
differs, because dropout masks and first values are the same. A mesh's cuts change no bit with aten,
either.
"""

import random
import unittest

from strata_program import ProgramTest

FP32, HALF = 1e-6, 5e-4

RECOMMENDER = """\
model: {kind: dlrm, bottom: [16, 8], top: [16], dropout: 0.1}
data:
  train: clicks.tsv
  label: click
  numeric: [price]
  categorical: [{name: user, width: 8}, {name: words, width: 8, pool: mean, separator: ' '}]
embedding: {servers: [local], shards: 2, optimizer: {kind: adagrad, learning_rate: 0.1}}
train: {steps: 12, mini_batch: 64, decay: constant, optimizer: {kind: adamw, learning_rate: 1e-2}}
mesh: {threads: 1}
"""


def values(losses):
    return [float.fromhex(loss) for loss in losses]


class Primitives(ProgramTest):
    def train(self, primitives, *arguments, recipe="recipe.yaml", **changes):
        """`loss_hex` of every step."""
        changes.setdefault("train__steps", 5)
        settings = [word for name, value in changes.items()
                    for word in ("--set", f"{name.replace('__', '.')}={value}")]
        if primitives:
            settings += ["--set", f"train.primitives={primitives}"]
        self.succeed("train", recipe, *settings, *arguments, "--metrics", "m.jsonl")
        losses = self.losses("m.jsonl")
        (self.folder / "m.jsonl").unlink()
        return losses

    def expect_close(self, tolerance, **setting):
        with self.subTest(**setting):
            own, aten = self.train("own", **setting), self.train("aten", **setting)
            self.assertNotEqual(own, aten)  # else the choice did nothing
            self.assertEqual(len(own), len(aten))
            for a, b in zip(values(own), values(aten)):
                self.assertLess(abs(a - b), tolerance * abs(a))

    def test_decoders_match_losses_of_own_kernels(self):
        self.expect_close(FP32, mesh__pp=2, memory__recompute="full")
        self.expect_close(FP32, mesh__dp=2, mesh__pp=1, mesh__zero=3, train__label_smoothing=0.1)
        self.expect_close(FP32, mesh__tp=2, mesh__pp=1, mesh__sequence_parallel="true")
        self.expect_close(FP32, mesh__tp=2, mesh__dp=2, mesh__pp=2, memory__recompute="none")
        self.expect_close(FP32, model__kind="llama", model__dropout=0, model__kv_heads=1, train__clip=0,
                          train__optimizer__kind="sgd", train__optimizer__learning_rate=0.1)

    def test_16_bit_matches_losses_of_own_kernels(self):
        self.expect_close(HALF, train__precision="bf16")
        self.expect_close(HALF, train__precision="fp16", mesh__dp=2, mesh__pp=1)
        self.expect_close(HALF, train__precision="bf16", model__kind="llama", model__dropout=0, mesh__tp=2, mesh__pp=1)

    def write_clicks(self):
        draw = random.Random(1)
        lines = ["click\tprice\tuser\twords"]
        for _ in range(1500):
            user, words = draw.randrange(50), [draw.randrange(80) for _ in range(3)]
            click = int(user % 7 + sum(words) % 5 > 5)
            lines.append(f"{click}\t{draw.random():.3f}\tu{user}\t{' '.join(f'w{word}' for word in words)}")
        (self.folder / "clicks.tsv").write_text("\n".join(lines) + "\n")
        (self.folder / "recommender.yaml").write_text(RECOMMENDER)

    def test_recommenders_match_losses_of_own_kernels(self):
        self.write_clicks()
        self.expect_close(FP32, recipe="recommender.yaml", mesh__dp=2)
        self.expect_close(FP32, recipe="recommender.yaml", model__batch_norm="all")
        crossed = RECOMMENDER.replace("kind: dlrm, bottom: [16, 8]", "kind: dcn")
        (self.folder / "crossed.yaml").write_text(crossed)
        self.expect_close(FP32, recipe="crossed.yaml")

    def test_mesh_changes_no_bit(self):
        one = self.train("aten", mesh__pp=1)
        for setting in ({"mesh__pp": 2}, {"mesh__pp": 4, "mesh__schedule": "gpipe"}, {"memory__recompute": "full"},
                        {"memory__recompute": "none"}, {"train__graph": "on"}, {"mesh__pp": 1, "mesh__threads": 2},
                        {"mesh__pp": 1, "memory__weights": "host", "memory__gradients": "host",
                         "memory__states": "host", "memory__window": 2}):
            with self.subTest(**setting):
                self.assertEqual(self.train("aten", **setting), one)

    def test_resumed_run_has_equal_bits(self):
        whole = self.train("aten", train__checkpoint_folder="saved", train__checkpoint_every=3)
        self.assertEqual(self.train("aten", "--resume", "saved/step-00000003"), whole[3:])

    def test_cpu_uses_own_kernels_by_default(self):
        self.assertEqual(self.train(None), self.train("own"))
        self.assertEqual(self.train("auto"), self.train("own"))
        self.refuse("plan", "recipe.yaml", "--set", "train.primitives=cudnn", says=["own", "aten"])


if __name__ == "__main__":
    unittest.main()
