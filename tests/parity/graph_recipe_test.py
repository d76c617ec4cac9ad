"""Trains an exported model by a recipe, and compares with PyTorch: losses, the checkpoint, the evaluation."""

import json
import os
import pathlib
import struct
import subprocess
import tempfile
import unittest
import zlib

from oracle import skip

try:
    import numpy
    import torch
    from safetensors.torch import load_file, save_file
    from torch import nn
except ImportError as error:
    skip(f"a Python package is missing ({error})")

STEPS, BATCH, RATE = 12, 16, 0.1
RECIPE = {
    "task": "graph",
    "model": {"file": "model.pt2"},
    "data": {"inputs": "x.npy", "targets": "y.npy", "validation_inputs": "vx.npy", "validation_targets": "vy.npy",
             "shuffle": False, "scale": 1 / 256},
    "train": {"steps": STEPS, "mini_batch": BATCH, "micro_batch": 4, "decay": "constant", "clip": 0,
              "optimizer": {"kind": "sgd", "learning_rate": RATE, "momentum": 0, "weight_decay": 0}},
    "mesh": {"threads": 1},
}


class Block(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.convolution, self.norm = nn.Conv2d(channels, channels, 3, padding=1), nn.GroupNorm(2, channels)

    def forward(self, x):
        return x + torch.relu(self.norm(self.convolution(x)))


def network(norm=nn.Identity):
    return nn.Sequential(nn.Conv2d(1, 8, 3, stride=2, padding=1), Block(8), norm(), Block(8), nn.AdaptiveAvgPool2d(1),
                         nn.Flatten(), nn.Linear(8, 5))


class Brightened(nn.Module):
    """A parameter of the model itself, which the layer that reads it names otherwise."""

    def __init__(self):
        super().__init__()
        self.gain, self.body = nn.Parameter(torch.tensor([1.5])), network()

    def forward(self, x):
        return self.body(x * self.gain)


def png(image):
    """The bytes of a grey image."""
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    height, width = image.shape
    rows = b"".join(b"\0" + row.tobytes() for row in image)
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def images(count, seed):
    """Bytes [count, 12, 12] of five kinds, with noise."""
    random = numpy.random.default_rng(seed)
    kinds = numpy.random.default_rng(7).integers(0, 200, (5, 12, 12))
    targets = random.integers(0, 5, count)
    return (kinds[targets] + random.integers(0, 56, (count, 12, 12))).astype(numpy.uint8), targets


class GraphRecipeTest(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)
        torch.manual_seed(3)
        torch.set_num_threads(1)
        self.model = Brightened()
        self.export(self.model)
        self.arrays = {}
        for inputs, targets, count, seed in (("x", "y", STEPS * BATCH, 1), ("vx", "vy", 45, 2)):
            self.arrays[inputs], self.arrays[targets] = images(count, seed)
        self.arrays["vy"][:BATCH] = -100  # a mini-batch without a target that counts
        for name, array in self.arrays.items():
            numpy.save(self.folder / f"{name}.npy", array)
        (self.folder / "recipe.yaml").write_text(json.dumps(RECIPE))

    def export(self, model):
        batch = torch.export.Dim("batch", min=2)
        program = torch.export.export(model.train(), (torch.randn(4, 1, 12, 12),), dynamic_shapes=({0: batch},), strict=False)
        torch.export.save(program, self.folder / "model.pt2")

    def program(self, *words):
        environment = dict(os.environ, XDG_CACHE_HOME=str(self.folder / "cache"))
        return subprocess.run([os.environ["STRATA_PROGRAM"], *words], cwd=self.folder, env=environment,
                              capture_output=True, text=True, check=False)

    def succeed(self, *words):
        done = self.program(*words)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def train(self, *words, **fields):
        """`loss_hex` of each step, and the last record."""
        sets = [word for name, value in fields.items() for word in ("--set", f"{name.replace('__', '.')}={value}")]
        self.succeed("train", "recipe.yaml", *sets, "--metrics", "m.jsonl", *words)
        steps = [json.loads(line) for line in (self.folder / "m.jsonl").read_text().splitlines()]
        (self.folder / "m.jsonl").unlink()
        return [step["loss_hex"] for step in steps]

    def tensors(self, inputs, targets):
        return torch.tensor(self.arrays[inputs]).view(-1, 1, 12, 12).float() * (1 / 256), torch.tensor(self.arrays[targets])

    def eager_losses(self, model):
        x, y = self.tensors("x", "y")
        losses = []
        for first in range(0, STEPS * BATCH, BATCH):
            model.zero_grad()
            total = 0
            for start in range(first, first + BATCH, 4):
                loss = nn.functional.cross_entropy(model(x[start:start + 4]), y[start:start + 4], reduction="sum")
                (loss * (1 / BATCH)).backward()
                total += loss.item()
            with torch.no_grad():  # two roundings; torch.optim.SGD has one
                for parameter in model.parameters():
                    parameter -= parameter.grad * RATE
            losses.append(total / BATCH)
        return losses

    def saved_weights(self, folder):
        weights = {}
        for part in (self.folder / folder).glob("step-*/model*.safetensors"):
            weights.update(load_file(part))
        return weights

    def test_losses_weights_and_evaluation_are_those_of_pytorch(self):
        ours = [float.fromhex(loss) for loss in self.train(train__checkpoint_folder="saved")]
        losses = self.eager_losses(self.model)
        self.assertEqual(ours, losses)
        loaded = Brightened()
        loaded.load_state_dict(self.saved_weights("saved"))  # under the model's own names, strict
        for name, value in self.model.state_dict().items():
            self.assertTrue(torch.equal(loaded.state_dict()[name], value), name)
        x, y = self.tensors("vx", "vy")
        with torch.no_grad():
            logits = loaded.eval()(x)
        self.succeed("evaluate", "saved", "--json", "evaluation.json")
        evaluation = json.loads((self.folder / "evaluation.json").read_text())
        self.assertAlmostEqual(evaluation["loss"], nn.functional.cross_entropy(logits, y).item(), delta=1e-5)
        self.assertAlmostEqual(evaluation["accuracy"], (logits.argmax(1) == y)[BATCH:].float().mean().item(), delta=1e-6)

    def test_meshes_tiers_and_resumed_runs_change_no_bit(self):
        one = self.train(train__checkpoint_folder="whole", train__checkpoint_every=8)
        on_host = {"memory__weights": "host", "memory__gradients": "host", "memory__states": "host"}
        for case in ({"mesh__pp": 2}, {"mesh__pp": 3, "mesh__schedule": "gpipe"}, {"memory__recompute": "full"}, on_host):
            with self.subTest(**case):
                self.assertEqual(self.train(**case), one)
        rest = self.train("--resume", "whole/step-00000008", mesh__pp=2)
        self.assertEqual(rest, one[8:])
        own = self.train(model__own_operations="true")
        self.assertNotEqual(own, one)
        self.assertAlmostEqual(float.fromhex(own[-1]), float.fromhex(one[-1]), delta=1e-4)
        self.train("--from", "whole", model__loss="cross_entropy_of_channels")  # of other losses, too
        for case in ({"mesh__dp": 2}, {"mesh__dp": 2, "mesh__zero": 3}):
            with self.subTest(**case):
                for ours, theirs in zip(self.train(**case), one, strict=True):
                    self.assertAlmostEqual(float.fromhex(ours), float.fromhex(theirs), delta=1e-5)

    def test_batch_norm_plans_verifies_and_trains(self):
        self.export(network(lambda: nn.BatchNorm2d(8)))
        self.succeed("plan", "recipe.yaml", "--set", "mesh.pp=2")
        self.succeed("verify", "recipe.yaml", "--set", "mesh.pp=2")
        self.assertEqual(self.train(mesh__pp=2), self.train())

    def test_model_option_needs_no_recipe(self):
        self.succeed("plan", "--model", "model.pt2", "--set", "data.inputs=x.npy", "--set", "data.targets=y.npy")
        out = self.succeed("train", "--model", "model.pt2", "--set", "data.inputs=x.npy", "--set", "data.targets=y.npy",
                           "--set", "train.steps=2")
        self.assertIn("weights  of model.pt2", out)

    def test_folders_of_images_are_samples_with_classes(self):
        images, targets = self.arrays["vx"][BATCH:], self.arrays["vy"][BATCH:]
        for number, (image, target) in enumerate(zip(images, targets)):
            folder = self.folder / "photos" / f"kind {target}"
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"{number}.png").write_bytes(png(image))
        numpy.save(self.folder / "vx.npy", images)
        numpy.save(self.folder / "vy.npy", targets)
        self.train(train__checkpoint_folder="saved")
        results = []
        for fields in ((), ("--set", "data.validation_inputs=photos", "--set", "data.validation_targets=photos")):
            self.succeed("evaluate", "saved", "--json", "evaluation.json", *fields)
            results.append(json.loads((self.folder / "evaluation.json").read_text()))
        self.assertAlmostEqual(results[0]["loss"], results[1]["loss"], delta=1e-6)
        self.assertEqual(results[0]["accuracy"], results[1]["accuracy"])
        photos = {"data__inputs": "photos", "data__targets": "photos", "data__validation_inputs": "photos", "data__validation_targets": "photos"}
        changed = {**photos, "data__flip": "true", "data__crop_padding": 2, "data__shuffle": "true"}
        augmented = self.train(**changed)
        self.assertNotEqual(augmented, self.train(**photos, data__shuffle="true"))
        self.assertEqual(augmented, self.train(**changed, mesh__pp=2))
        for ours, theirs in zip(augmented, self.train(**changed, mesh__dp=2)):
            self.assertAlmostEqual(float.fromhex(ours), float.fromhex(theirs), delta=1e-5)

    def test_safetensors_are_arrays(self):
        one = self.train()
        for name, array in self.arrays.items():
            save_file({name: torch.tensor(array)}, self.folder / f"{name}.safetensors")
        self.assertEqual(self.train(data__inputs="x.safetensors", data__targets="y.safetensors"), one)
        save_file({"a": torch.zeros(2), "b": torch.zeros(2)}, self.folder / "two.safetensors")
        done = self.program("train", "recipe.yaml", "--set", "data.inputs=two.safetensors")
        self.assertIn("the file has another number of tensors", done.stderr)

    def test_refusals_name_field_and_fix(self):
        for field, says in (("mesh.tp=2", "mesh.tp=1"), ("train.precision=bf16", "train.precision=fp32"),
                            ("model.file=none.pt2", "none.pt2"), ("model.file=x.npy", "x.npy"),
                            ("data.inputs=y.npy", "does not fit the model"), ("data.targets=.", "subfolder"), ("model.loss=squared_error", "does not fit"),
                            ("model.file=", "model.file")):
            done = self.program("train", "recipe.yaml", "--set", field)
            self.assertEqual(done.returncode, 2, field + done.stdout + done.stderr)
            self.assertIn(says, done.stderr)
        self.train(train__checkpoint_folder="saved")
        self.export(nn.Sequential(nn.Flatten(), nn.Linear(144, 5)))
        done = self.program("train", "recipe.yaml", "--resume", "saved", "--set", f"train.steps={STEPS + 1}")
        self.assertEqual(done.returncode, 2)
        self.assertIn("another model", done.stderr)


if __name__ == "__main__":
    unittest.main()
