#!/usr/bin/env python3
"""Trains the peers' GPT on two stages of one process by torchgpipe or by strata.GPipe, and prints one JSON object.

    gpipe_peer.py --api torchgpipe|strata      torchgpipe: installed, or TORCHGPIPE names a checkout
"""

import argparse
import json
import os
import statistics
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "build/release/python"), os.environ.get("TORCHGPIPE", "")]
from sizes import add_sizes, sizes_of  # noqa: E402


def gpipe_of(api):
    if api == "strata":
        from strata.gpipe import GPipe
    else:
        from torchgpipe import GPipe
    return GPipe


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--api", choices=["torchgpipe", "strata"], required=True)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--warmup", type=int, default=2)
    add_sizes(parser)
    options = parser.parse_args()
    import torch
    from torch import nn
    from torch_gpt import Stage, make_batch, make_optimizer, peak_resident_bytes, timed_steps, token_loss

    torch.set_num_threads(1)
    sizes = sizes_of(options)
    middle = sizes.layers // 2
    stages = nn.Sequential(Stage(sizes, 0, middle), Stage(sizes, middle, sizes.layers))
    model = gpipe_of(options.api)(stages, [1, 1], devices=["cpu", "cpu"], chunks=sizes.micro_batches, checkpoint="never")
    optimizer, generator, loss_of = make_optimizer(model), torch.Generator().manual_seed(1), token_loss(sizes.tokens)
    losses = []

    def step():
        inputs, targets = make_batch(sizes, generator)
        loss = loss_of(model(inputs), targets)
        loss.backward()
        nn.utils.clip_grads_with_norm_(list(model.parameters()), 1.0, nn.utils.get_total_norm([p.grad for p in model.parameters()]))
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())

    seconds = timed_steps(options.warmup + options.steps, step)
    print(json.dumps({"step_seconds": seconds, "losses": losses, "resident_bytes": [peak_resident_bytes()],
                      "tokens_per_second": sizes.tokens / statistics.median(seconds[options.warmup:])}))


if __name__ == "__main__":
    main()
