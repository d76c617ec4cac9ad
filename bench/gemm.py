#!/usr/bin/env python3
"""Prints the rate of the model's own matrix products: the physical limit of every contestant.

    gemm.py --processes 2 --threads 1     processes at once, their rates summed

A block's four products at one micro-batch of rows, back to back: with PyTorch's mm (MKL) and with the
oneDNN inside PyTorch, which uses AVX-512 on more processors; the better of the two.
"""

import argparse
import json
import time

from ranks import is_rank, start_ranks
from sizes import add_sizes, sizes_of


def flops_per_second(sizes, seconds, threads):
    import torch

    torch.set_num_threads(threads)
    rows, width = sizes.micro_batch * sizes.context, sizes.width
    pairs = [(torch.randn(rows, a * width), torch.randn(a * width, b * width))
             for a, b in ((1, 3), (1, 1), (1, 4), (4, 1))]
    outputs = [x @ w for x, w in pairs]
    columns = [w.t().contiguous() for _, w in pairs]
    flops = sum(2 * x.shape[0] * x.shape[1] * w.shape[1] for x, w in pairs)

    def by_mm():
        for (x, w), out in zip(pairs, outputs):
            torch.mm(x, w, out=out)

    def by_onednn():
        for (x, _), w in zip(pairs, columns):
            torch.ops.mkldnn._linear_pointwise(x, w, None, "none", [], "")

    def rate(multiply):
        multiply()
        rounds, begin = 0, time.perf_counter()
        while time.perf_counter() - begin < seconds / 2:
            multiply()
            rounds += 1
        return rounds * flops / (time.perf_counter() - begin)

    return max(rate(by_mm), rate(by_onednn))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1, help="per process")
    parser.add_argument("--seconds", type=float, default=2.0)
    add_sizes(parser)
    options = parser.parse_args()
    if options.processes > 1 and not is_rank():
        printed = start_ranks(options.processes, options.threads)
        rate = sum(json.loads(text)["flops_per_second"] for text in printed)
    else:
        rate = flops_per_second(sizes_of(options), options.seconds, options.threads)
    print(json.dumps({"flops_per_second": rate}))


if __name__ == "__main__":
    main()
