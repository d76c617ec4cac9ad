"""Trains the bench's DLRM with PyTorch on clicks in memory, the embeddings by FBGEMM or by nn.EmbeddingBag.

    torch_dlrm.py fbgemm|bag LOG.npz --batch 2048 --steps 60 --warmup 20

Prints one JSON line: the seconds of every step, the last loss and the process's peak resident bytes.
"""

import argparse
import json
import resource
import time

import numpy
import torch
from torch import nn
from torch.nn import functional

FEATURES, WIDTH, ROWS, NUMBERS = 26, 16, 100_000, 13
BOTTOM, TOP = (64, 16), (64, 32)


def layers(widths):
    return nn.Sequential(*(part for a, b in zip(widths, widths[1:]) for part in (nn.Linear(a, b), nn.ReLU())))


class Dlrm(nn.Module):
    """Naumov et al. 2019: products of all pairs of vectors beside the numbers' vector."""

    def __init__(self):
        super().__init__()
        self.bottom = layers((NUMBERS, *BOTTOM))
        pairs = (FEATURES + 1) * FEATURES // 2
        self.top = nn.Sequential(layers((WIDTH + pairs, *TOP)), nn.Linear(TOP[-1], 1))
        self.register_buffer("pairs", torch.tril_indices(FEATURES + 1, FEATURES + 1, -1))

    def forward(self, numbers, rows):
        x = self.bottom(numbers)
        vectors = torch.cat([x.unsqueeze(1), rows.view(-1, FEATURES, WIDTH)], 1)
        dots = torch.bmm(vectors, vectors.transpose(1, 2))[:, self.pairs[0], self.pairs[1]]
        return self.top(torch.cat([x, dots], 1)).squeeze(1)


class Bag(nn.Module):
    """One table of all features, sparse gradients, PyTorch's Adagrad."""

    def __init__(self, batch):
        super().__init__()
        self.table = nn.EmbeddingBag(FEATURES * ROWS, WIDTH, mode="sum", sparse=True)
        nn.init.uniform_(self.table.weight, -0.01, 0.01)
        self.optimizer = torch.optim.Adagrad(self.table.parameters(), lr=0.05)
        self.offsets = torch.arange(batch * FEATURES)
        self.first = torch.arange(FEATURES) * ROWS

    def forward(self, ids):
        return self.table((ids + self.first).view(-1), self.offsets)

    def step(self):
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)


class Fbgemm(nn.Module):
    """FBGEMM's tables of all features, whose backward updates them."""

    def __init__(self, batch):
        super().__init__()
        from fbgemm_gpu.split_embedding_configs import EmbOptimType
        from fbgemm_gpu.split_table_batched_embeddings_ops_common import EmbeddingLocation, PoolingMode
        from fbgemm_gpu.split_table_batched_embeddings_ops_training import (
            ComputeDevice, SplitTableBatchedEmbeddingBagsCodegen)
        self.table = SplitTableBatchedEmbeddingBagsCodegen(
            [(ROWS, WIDTH, EmbeddingLocation.HOST, ComputeDevice.CPU)] * FEATURES,
            optimizer=EmbOptimType.EXACT_ADAGRAD, learning_rate=0.05, eps=1e-10, pooling_mode=PoolingMode.SUM)
        self.table.init_embedding_weights_uniform(-0.01, 0.01)
        self.offsets = torch.arange(batch * FEATURES + 1)

    def forward(self, ids):
        return self.table(ids.t().reshape(-1), self.offsets)

    def step(self):
        pass


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=["fbgemm", "bag"])
    parser.add_argument("log")
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--warmup", type=int, required=True)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--compile", action="store_true", help="the net by torch.compile")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(1)
    log = numpy.load(options.log)
    numbers, ids, labels = (torch.from_numpy(log[name]) for name in ("numbers", "ids", "labels"))
    tables = {"fbgemm": Fbgemm, "bag": Bag}[options.kind](options.batch)
    net = Dlrm()
    model = torch.compile(net) if options.compile else net
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3, fused=True)
    seconds = []
    for step in range(options.warmup + options.steps):
        begin = time.perf_counter()
        first = step * options.batch % (len(labels) - options.batch)
        part = slice(first, first + options.batch)
        scores = model(numbers[part], tables(ids[part]))
        loss = functional.binary_cross_entropy_with_logits(scores, labels[part])
        loss.backward()
        optimizer.step()
        tables.step()
        optimizer.zero_grad(set_to_none=True)
        found = loss.item()
        seconds.append(time.perf_counter() - begin)
    print(json.dumps({"step_seconds": seconds, "loss": found,
                      "peak_resident_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}))


if __name__ == "__main__":
    main()
