"""The peers' GPT in plain PyTorch, and what all of them train it with.

The same sizes and the same arithmetic as strata/models/gpt: pre-norm blocks, learned positions,
tanh-GELU, fused causal attention, untied head, fp32, AdamW, global-norm clipping at 1.0.
"""

import time

import torch
import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def attention(self, x):
        batch, length, width = x.shape
        q, k, v = (
            part.view(batch, length, self.heads, width // self.heads).transpose(1, 2)
            for part in self.qkv(x).split(width, dim=2)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(batch, length, width))

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Stage(nn.Module):
    """Blocks [begin, end) of the model, with the embedding on the first and the head on the last."""

    def __init__(self, sizes, begin, end):
        super().__init__()
        self.embed = self.positions = self.head = None
        if begin == 0:
            self.embed = nn.Embedding(sizes.vocab, sizes.width)
            self.positions = nn.Parameter(torch.empty(sizes.context, sizes.width))
        self.blocks = nn.ModuleList(Block(sizes.width, sizes.heads) for _ in range(begin, end))
        if end == sizes.layers:
            self.norm = nn.LayerNorm(sizes.width)
            self.head = nn.Linear(sizes.width, sizes.vocab, bias=False)
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, x):
        if self.embed is not None:
            x = self.embed(x) + self.positions
        for block in self.blocks:
            x = block(x)
        return x if self.head is None else self.head(self.norm(x))


def weight_groups(model):
    """Matrices decay, norms and biases do not."""
    matrices = [p for p in model.parameters() if p.dim() > 1]
    others = [p for p in model.parameters() if p.dim() <= 1]
    return [{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]


ADAMW = {"lr": 1e-3, "betas": (0.9, 0.95), "fused": True}


def make_optimizer(model):
    return torch.optim.AdamW(weight_groups(model), **ADAMW)


def make_batch(sizes, generator):
    text = torch.randint(sizes.vocab, (sizes.mini_batch, sizes.context + 1), generator=generator)
    return text[:, :-1].contiguous(), text[:, 1:].contiguous()


def token_loss(tokens):
    """The sum over a micro-batch divided by `tokens`, those that gradients are the mean of: they add
    up without a scaling pass."""

    def loss(logits, targets):
        total = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum")
        return total / tokens

    return loss


def timed_steps(steps, step):
    seconds = []
    for _ in range(steps):
        begin = time.perf_counter()
        step()
        seconds.append(time.perf_counter() - begin)
    return seconds


def peak_resident_bytes():
    with open("/proc/self/status") as status:
        for line in status:
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    raise RuntimeError("no VmHWM in /proc/self/status")
