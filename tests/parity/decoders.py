"""Trains a GPT and a Llama in plain PyTorch, as the reference for Strata's training.

Written from the papers; only the names and the packing of weights are Strata's, so that our state
dicts fit. One process, whole mini-batches, autograd, torch.optim.
"""

import json
import math

import torch
from torch import nn
from torch.nn import functional

IGNORED = -100


def read_safetensors(path):
    """A file of fp32 tensors: u64 length of the header, the header, the bytes."""
    data = bytearray(path.read_bytes())
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8:8 + length])
    tensors = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        assert entry["dtype"] == "F32", name
        begin, end = (8 + length + offset for offset in entry["data_offsets"])
        values = torch.frombuffer(data[begin:end], dtype=torch.float32)
        tensors[name] = values.reshape(entry["shape"]).clone()
    return tensors


def causal_attention(query, key, value):
    """[B, heads, T, D]"""
    length = query.size(2)
    scores = query @ key.transpose(2, 3) / math.sqrt(query.size(3))
    future = torch.ones(length, length, dtype=torch.bool).triu(1)
    return scores.masked_fill(future, float("-inf")).softmax(-1) @ value


class GptAttention(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.heads = model["heads"]
        self.qkv = nn.Linear(model["width"], 3 * model["width"])
        self.out = nn.Linear(model["width"], model["width"])

    def forward(self, x):
        batch, length, width = x.shape
        query, key, value = (
            part.reshape(batch, length, self.heads, width // self.heads).transpose(1, 2)
            for part in self.qkv(x).chunk(3, dim=2))
        mixed = causal_attention(query, key, value)
        return self.out(mixed.transpose(1, 2).reshape(batch, length, width))


class GptMlp(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.up = nn.Linear(model["width"], 4 * model["width"])
        self.down = nn.Linear(4 * model["width"], model["width"])

    def forward(self, x):
        return self.down(functional.gelu(self.up(x), approximate="tanh"))


class LlamaAttention(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.heads, self.kv_heads = model["heads"], model["kv_heads"]
        self.head_width = model["width"] // model["heads"]
        keys = self.kv_heads * self.head_width
        self.qkv = nn.Linear(model["width"], model["width"] + 2 * keys, bias=False)
        self.out = nn.Linear(model["width"], model["width"], bias=False)

    def forward(self, x):
        batch, length, width = x.shape
        keys = self.kv_heads * self.head_width
        query, key, value = (
            part.reshape(batch, length, -1, self.head_width).transpose(1, 2)
            for part in self.qkv(x).split([width, keys, keys], dim=2))
        shared = self.heads // self.kv_heads
        key = self.rotate(key).repeat_interleave(shared, dim=1)
        value = value.repeat_interleave(shared, dim=1)
        mixed = causal_attention(self.rotate(query), key, value)
        return self.out(mixed.transpose(1, 2).reshape(batch, length, width))

    def rotate(self, x):
        """Rotates element i with element i + D/2 (Su et al. 2021, in the order of Llama's
        files)."""
        half = self.head_width // 2
        speed = 10000.0 ** (-torch.arange(half, dtype=torch.float64) / half)
        angle = torch.arange(x.size(2), dtype=torch.float64)[:, None] * speed
        cos, sin = angle.cos().float(), angle.sin().float()
        a, b = x[..., :half], x[..., half:]
        return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=3)


class LlamaMlp(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.gate_up = nn.Linear(model["width"], 2 * model["mlp_width"], bias=False)
        self.down = nn.Linear(model["mlp_width"], model["width"], bias=False)

    def forward(self, x):
        gate, up = self.gate_up(x).chunk(2, dim=2)
        return self.down(functional.silu(gate) * up)


class RmsNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5) * self.weight


class Embedding(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.tokens = nn.Embedding(model["vocab"], model["width"])
        if model["kind"] == "gpt":
            self.positions = nn.Embedding(model["context"], model["width"])

    def forward(self, tokens):
        x = self.tokens(tokens)
        if hasattr(self, "positions"):
            x = x + self.positions(torch.arange(tokens.size(1)))
        return x


class Block(nn.Module):
    def __init__(self, model):
        super().__init__()
        llama = model["kind"] == "llama"
        norm = RmsNorm if llama else nn.LayerNorm
        self.norm1, self.norm2 = norm(model["width"]), norm(model["width"])
        self.attention = LlamaAttention(model) if llama else GptAttention(model)
        self.mlp = LlamaMlp(model) if llama else GptMlp(model)

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Head(nn.Module):
    def __init__(self, model, tied):
        super().__init__()
        norm = RmsNorm if model["kind"] == "llama" else nn.LayerNorm
        self.norm = norm(model["width"])
        if tied is None:
            self.weight = nn.Parameter(torch.empty(model["vocab"], model["width"]))
        else:
            self.weight = tied

    def forward(self, x):
        return self.norm(x) @ self.weight.t()


class Decoder(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.embed = Embedding(model)
        for i in range(model["layers"]):
            setattr(self, f"block{i}", Block(model))
        self.head = Head(model, self.embed.tokens.weight if model["tie"] else None)
        self.layers = model["layers"]

    def load(self, weights):
        tied = self.head.weight is self.embed.tokens.weight
        weights = dict(weights, **({"head.weight": weights["embed.tokens.weight"]} if tied else {}))
        self.load_state_dict(weights)  # checks every name on both sides

    def loss(self, tokens, targets, label_smoothing=0.0):
        x = self.embed(tokens)
        for i in range(self.layers):
            x = getattr(self, f"block{i}")(x)
        logits = self.head(x).flatten(0, 1)
        return functional.cross_entropy(logits, targets.flatten(), ignore_index=IGNORED,
                                        label_smoothing=label_smoothing)


def learning_rate(train, step):
    """Linear warm-up to the peak, then half a cosine down to the final fraction at the last
    step."""
    peak, warmup, steps = train["optimizer"]["learning_rate"], train["warmup"], train["steps"]
    if step < warmup:
        return peak * (step + 1) / warmup
    progress = (step - (warmup - 1)) / (steps - 1 - (warmup - 1))
    final = train["final_fraction"]
    return peak * (final + (1 - final) * (1 + math.cos(math.pi * progress)) / 2)


class Training:
    """Makes the steps of the recipe."""

    def __init__(self, recipe, weights):
        self.train = recipe["train"]
        self.model = Decoder(recipe["model"])
        self.model.load(weights)
        parameters = list(self.model.parameters())  # a tied weight once
        options = self.train["optimizer"]
        self.optimizer = torch.optim.AdamW(
            [{"params": [p for p in parameters if p.dim() > 1]},
             {"params": [p for p in parameters if p.dim() == 1], "weight_decay": 0.0}],
            lr=0.0, betas=(options["beta1"], options["beta2"]), eps=options["epsilon"],
            weight_decay=options["weight_decay"])
        self.steps = 0

    def step(self, tokens, targets):
        """Loss and norm of the gradient before it is clipped."""
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(self.train, self.steps)
        self.steps += 1
        self.optimizer.zero_grad()
        loss = self.model.loss(tokens, targets, self.train["label_smoothing"])
        loss.backward()
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), self.train["clip"])
        self.optimizer.step()
        return loss.item(), norm.item()

    def weights(self):
        return {name: p.detach() for name, p in self.model.named_parameters()}  # a tied weight once
