#!/usr/bin/env python3
"""FlexAttention with the blocks of a pattern, compiled: forward only, because it has no backward on
a CPU.

    flex_peer.py HEADS WIDTH THREADS

Reads requests, a line of JSON each: tokens, seconds, block, window, blocks (of keys, for each block
of queries); answers with the seconds of repetitions, a line of JSON. Of FlexAttention's own block
sizes 64 and 128 the faster one counts.
"""

import json
import sys
import time

import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

FLEX_BLOCKS = (64, 128)
# Each mask is compiled by itself; what is not compiled must not be timed.
torch._dynamo.config.recompile_limit = 256
torch._dynamo.config.fail_on_recompile_limit_hit = True


def mask_of(request):
    block, window, tokens = request["block"], request["window"], request["tokens"]
    if window:
        return lambda batch, head, i, j: (i >= j) & (i - j < window)
    count = (tokens + block - 1) // block
    layout = torch.zeros(count, count, dtype=torch.bool)
    for query, keys in enumerate(request["blocks"][0]):
        layout[query, keys] = True
    return lambda batch, head, i, j: (i >= j) & layout[i // block, j // block]


def seconds_of(run, limit):
    run()
    times = []
    while sum(times) < limit or not times:
        begin = time.perf_counter()
        run()
        times.append(time.perf_counter() - begin)
    return times


def main():
    heads, width, threads = map(int, sys.argv[1:])
    torch.set_num_threads(threads)
    compiled = {size: torch.compile(flex_attention, dynamic=False) for size in FLEX_BLOCKS}
    masks = {}
    for line in sys.stdin:
        request = json.loads(line)
        tokens = request["tokens"]
        q, k, v = (torch.randn(1, heads, tokens, width) for _ in range(3))
        best = None
        for size in FLEX_BLOCKS:
            key = (line, size)
            if key not in masks:
                masks[key] = create_block_mask(mask_of(request), None, None, tokens, tokens, device="cpu",
                                               BLOCK_SIZE=size)
            with torch.no_grad():
                times = seconds_of(lambda: compiled[size](q, k, v, block_mask=masks[key]), request["seconds"])
            if best is None or min(times) < min(best):
                best = times
        print(json.dumps({"seconds": best}), flush=True)


main()
