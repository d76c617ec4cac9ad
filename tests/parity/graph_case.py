"""Small models, and a test case that exports one and trains it by Strata and in PyTorch's eager mode."""

import json
import os
import pathlib
import subprocess
import tempfile
import unittest

from oracle import import_transformers

transformers = import_transformers()
import torch  # noqa: E402
from safetensors.torch import load_file  # noqa: E402
from torch import nn  # noqa: E402

STEPS, RATE = 20, 0.05
TOKENS = torch.randint(0, 40, (8, 17), generator=torch.Generator().manual_seed(1))


class Residual(nn.Module):
    def __init__(self, width, dropout=0.0):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        return x + self.dropout(self.down(torch.relu_(self.up(self.norm(x)))))


def perceptron(dropout=0.0):
    return nn.Sequential(nn.Linear(12, 32), Residual(32, dropout), Residual(32, dropout), Residual(32, dropout), nn.Linear(32, 5))


class Attention(nn.Module):
    """A causal block of a language model; nothing tells the exporter its shape."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm, self.qkv, self.out = nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = (part.view(batch, length, self.heads, -1).transpose(1, 2) for part in self.qkv(self.norm(x)).chunk(3, -1))
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x + self.out(y.transpose(1, 2).reshape(batch, length, width))


class Language(nn.Module):
    """The head has the weight of the embedding."""

    def __init__(self, words=40, width=32, length=16, blocks=3):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(words, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(nn.Sequential(Attention(width, 4), Residual(width)) for _ in range(blocks))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, ids):
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


class Convolution(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs)

    def forward(self, x):
        return nn.functional.relu(self.norm(self.conv(x)), inplace=True)


class UNet(nn.Module):
    """Two long skips."""

    def __init__(self):
        super().__init__()
        self.down = nn.ModuleList([Convolution(3, 8), Convolution(8, 16)])
        self.pool, self.bottom = nn.MaxPool2d(2), Convolution(16, 16)
        self.up = nn.ModuleList([Convolution(32, 8), Convolution(16, 8)])
        self.rise, self.head = nn.Upsample(scale_factor=2), nn.Conv2d(8, 3, 1)

    def forward(self, x):
        skips = []
        for down in self.down:
            x = down(x)
            skips.append(x)
            x = self.pool(x)
        x = self.bottom(x)
        for up in self.up:
            x = up(torch.cat([self.rise(x), skips.pop()], 1))
        return self.head(x)


class Logits(nn.Module):
    """A model of transformers, unchanged."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, ids):
        return self.model(input_ids=ids, use_cache=False).logits


def gpt2(**dropout):
    config = transformers.GPT2Config(n_embd=32, n_layer=3, n_head=2, n_positions=16, vocab_size=40, use_cache=False,
                                     bos_token_id=None, eos_token_id=None,
                                     **{"attn_pdrop": 0, "embd_pdrop": 0, "resid_pdrop": 0, **dropout})
    return Logits(transformers.GPT2LMHeadModel(config))


def llama():
    config = transformers.LlamaConfig(hidden_size=32, intermediate_size=48, num_hidden_layers=3, num_attention_heads=4,
                                      num_key_value_heads=2, max_position_embeddings=16, vocab_size=40, use_cache=False,
                                      bos_token_id=None, eos_token_id=None)
    return Logits(transformers.LlamaForCausalLM(config))


def randomised(model):
    """Norms and biases begin with values at which errors show."""
    for parameter in model.parameters():
        if parameter.dim() == 1:
            parameter.data.add_(torch.randn_like(parameter) * 0.2)
    return model


class GraphTest(unittest.TestCase):
    """Exports a model and trains it by Strata and by PyTorch."""

    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)
        torch.manual_seed(5)

    def export(self, model, x):
        program = torch.export.export(model, (x,), dynamic_shapes=({0: torch.export.Dim("batch", min=2)},), strict=False)
        torch.export.save(program, str(self.folder / "model.pt2"))

    def write(self, x, targets):
        for name, tensor in (("input0", x), ("targets", targets)):
            tensor.contiguous().numpy().tofile(self.folder / name)

    @staticmethod
    def spec(tensor):
        return {"dtype": "int64" if tensor.dtype == torch.int64 else "float", "shape": list(tensor.shape)}

    def strata(self, x, targets, **more):
        entropy = targets.dtype == torch.int64
        run = {"loss": "cross_entropy" if entropy else "squared_error", "inputs": [self.spec(x)], "targets": self.spec(targets),
               "samples": len(x), "valid": targets.numel(), "micro_batch": len(x), "steps": STEPS, "learning_rate": RATE, **more}
        (self.folder / "run.json").write_text(json.dumps(run))
        done = subprocess.run([os.environ["PARITY_GRAPH"], str(self.folder)], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        found = json.loads(done.stdout)
        return (found["losses"], load_file(self.folder / "first_gradients.safetensors"),
                load_file(self.folder / "weights.safetensors"), found["layers"])

    @staticmethod
    def eager(model, x, targets, micro_batch):
        """Gradients are sums over micro-batches, as a mini-batch that does not fit is trained."""
        losses, first = [], {}
        entropy, valid = targets.dtype == torch.int64, targets.numel()
        for _ in range(STEPS):
            model.zero_grad()
            total = 0.0
            for part, target in zip(x.split(micro_batch), targets.split(micro_batch)):
                y = model(part)
                loss = (nn.functional.cross_entropy(y.flatten(0, -2), target.flatten(), reduction="sum") if entropy
                        else (y - target).square().sum())
                (loss * (1 / valid)).backward()
                total += loss.double().item()
            losses.append(total / valid)
            if not first:
                first = {name: parameter.grad.clone() for name, parameter in model.named_parameters(remove_duplicate=False)
                         if parameter.requires_grad}
            with torch.no_grad():  # two roundings; torch.optim.SGD has one
                for parameter in model.parameters():
                    if parameter.requires_grad:
                        parameter -= parameter.grad * RATE
        return losses, first, dict(model.state_dict())

    def assert_bits(self, found, expected, tolerance=0.0, skipped=()):
        losses, gradients, weights, _ = found
        for got, want in zip(losses, expected[0], strict=True):
            self.assertLessEqual(abs(got - want), tolerance * abs(want))
        for ours, theirs in ((gradients, expected[1]), (weights, expected[2])):
            for name, want in theirs.items():
                if name.endswith("num_batches_tracked") or name in skipped:
                    continue
                if name not in ours:  # a tied parameter has one of its names
                    self.assertTrue(any(torch.equal(want, theirs[other]) for other in ours if other in theirs), name)
                    continue
                self.assertLessEqual((ours[name].view_as(want) - want).abs().max().item(), tolerance, name)
