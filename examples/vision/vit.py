"""A vision transformer (Dosovitskiy et al. 2020, arXiv 2010.11929)."""

import torch
from torch import nn


class Embedding(nn.Module):
    """Patches, a token of the class, positions."""

    def __init__(self, size, patch, channels, width):
        super().__init__()
        self.patches = nn.Conv2d(channels, width, patch, patch)
        self.token = nn.Parameter(torch.zeros(1, 1, width))
        self.positions = nn.Parameter(torch.randn(1, (size // patch)**2 + 1, width) * 0.02)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        return torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.positions


class Block(nn.Module):
    def __init__(self, width, heads, dropout):
        super().__init__()
        self.heads = heads
        self.norm, self.qkv, self.out = nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width),
                                 nn.Dropout(dropout))

    def forward(self, x):
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.qkv(self.norm(x)).chunk(3, -1))
        y = nn.functional.scaled_dot_product_attention(q, k, v)
        x = x + self.out(y.transpose(1, 2).flatten(2))
        return x + self.mlp(x)


class Head(nn.Module):
    def __init__(self, width, classes):
        super().__init__()
        self.norm, self.linear = nn.LayerNorm(width), nn.Linear(width, classes)

    def forward(self, x):
        return self.linear(self.norm(x)[:, 0])


def vit(size=224, patch=16, channels=3, width=768, layers=12, heads=12, classes=1000, dropout=0.0):
    return nn.Sequential(Embedding(size, patch, channels, width), *(Block(width, heads, dropout) for _ in range(layers)),
                         Head(width, classes))
