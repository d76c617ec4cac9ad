#!/usr/bin/env python3
"""Writes MLPerf's BERT at reduced size as a model that `strata train --model` reads, and its samples.

    python3 examples/mlperf/bert.py --text data/kjv.txt --out data/bert

The network is BERT's (Devlin et al. 2019, arXiv 1810.04805): embeddings of tokens and positions, layers that attend in both directions
and normalise after each sum, and the head of the masked language model. The benchmark's second loss, of sentence pairs, is left out.
Tokens are bytes. As in the paper, 15 % of them are to be predicted: 80 % of these are replaced by [MASK], 10 % by another byte.
"""

import argparse
import pathlib

import numpy
import torch
from torch import nn

MASK = 256
IGNORED = -100


class Embedding(nn.Module):
    def __init__(self, vocabulary, context, width):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Parameter(torch.zeros(context, width))
        self.norm = nn.LayerNorm(width)

    def forward(self, ids):
        return self.norm(self.tokens(ids) + self.positions)


class Layer(nn.Module):
    def __init__(self, width, heads, dropout):
        super().__init__()
        self.heads = heads
        self.qkv, self.out, self.norm1 = nn.Linear(width, 3 * width), nn.Linear(width, width), nn.LayerNorm(width)
        self.up, self.down, self.norm2 = nn.Linear(width, 4 * width), nn.Linear(4 * width, width), nn.LayerNorm(width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        y = nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        x = self.norm1(x + self.dropout(self.out(y)))
        return self.norm2(x + self.dropout(self.down(nn.functional.gelu(self.up(x)))))


class Head(nn.Module):
    def __init__(self, width, vocabulary):
        super().__init__()
        self.dense, self.norm, self.scores = nn.Linear(width, width), nn.LayerNorm(width), nn.Linear(width, vocabulary)

    def forward(self, x):
        return self.scores(self.norm(nn.functional.gelu(self.dense(x))))


def bert(layers, width, heads, context, dropout=0.1):
    network = nn.Sequential(Embedding(257, context, width), *(Layer(width, heads, dropout) for _ in range(layers)), Head(width, 257))
    for parameter in network.parameters():
        if parameter.dim() > 1:
            nn.init.normal_(parameter, std=0.02)
    return network


def samples(text, context, random):
    """Tokens with [MASK]s, and targets that are ignored but for the tokens to predict."""
    whole = numpy.frombuffer(text, numpy.uint8).astype(numpy.int64)
    whole = whole[: len(whole) // context * context].reshape(-1, context)
    chance, kind = random.random(whole.shape), random.random(whole.shape)
    wanted = chance < 0.15
    tokens = numpy.where(wanted & (kind < 0.8), MASK, whole)
    tokens = numpy.where(wanted & (kind >= 0.9), random.integers(0, 256, whole.shape), tokens)
    return tokens, numpy.where(wanted, whole, IGNORED)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--text", required=True)
    parser.add_argument("--out", required=True, help="folder")
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--context", type=int, default=32)
    parser.add_argument("--seed", type=int, default=1, help="of the first weights and the masks")
    options = parser.parse_args()
    folder = pathlib.Path(options.out)
    folder.mkdir(parents=True, exist_ok=True)
    tokens, targets = samples(pathlib.Path(options.text).read_bytes(), options.context, numpy.random.default_rng(options.seed))
    order = numpy.random.default_rng(options.seed).permutation(len(tokens))  # the last samples validate
    numpy.save(folder / "tokens.npy", tokens[order])
    numpy.save(folder / "targets.npy", targets[order])
    torch.manual_seed(options.seed)
    network = bert(options.layers, options.width, options.heads, options.context)
    example = torch.zeros(2, options.context, dtype=torch.long)
    program = torch.export.export(network.train(), (example,), dynamic_shapes=({0: torch.export.Dim("batch", min=2)},), strict=False)
    torch.export.save(program, folder / "model.pt2")
    print(f"{folder}: {sum(p.numel() for p in network.parameters()):,} parameters, {len(tokens):,} samples of {options.context} tokens")


if __name__ == "__main__":
    main()
