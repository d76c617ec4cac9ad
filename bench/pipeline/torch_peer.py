#!/usr/bin/env python3
"""Runs one PyTorch contestant for a few steps and prints one JSON object.

    torch_peer.py eager --threads 2             one process, gradients accumulated
    torch_peer.py compile --threads 2           the same, compiled
    torch_peer.py pipeline --schedule 1f1b      torch.distributed.pipelining on Gloo, 2 processes

This file imports no torch, so that the process which starts a pipeline's ranks stays small; only
the ranks are measured.
"""

import argparse
import json
import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from ranks import is_rank, start_ranks  # noqa: E402
from sizes import add_sizes, sizes_of  # noqa: E402


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("mode", choices=["eager", "compile", "pipeline"])
    parser.add_argument("--schedule", choices=["gpipe", "1f1b", "zb1p", "zbv"], default="1f1b")
    parser.add_argument("--precision", choices=["fp32", "autocast", "bf16"], default="fp32",
                        help="of eager, compile")
    parser.add_argument("--recompute", choices=["nothing", "blocks", "operations"], default="nothing",
                        help="of eager, compile")
    parser.add_argument("--processes", type=int, default=2, help="of a pipeline")
    parser.add_argument("--threads", type=int, default=1, help="per process")
    parser.add_argument("--steps", type=int, default=4, help="measured steps")
    parser.add_argument("--warmup", type=int, default=2, help="steps before them")
    add_sizes(parser)
    options = parser.parse_args()
    if options.mini_batch % options.micro_batch:
        parser.error("--micro-batch must divide --mini-batch: torch's schedules take no remainder")
    return options


def run(options):
    import torch_train

    sizes, steps = sizes_of(options), options.warmup + options.steps
    if options.mode in ("eager", "compile"):
        result = torch_train.train_eager(sizes, steps, options.threads, options.precision,
                                         compiled=options.mode == "compile", recompute=options.recompute)
    else:
        result = torch_train.train_pipeline(sizes, steps, options.threads, options.schedule)
    if result is None:
        return
    result["tokens_per_second"] = sizes.tokens / statistics.median(
        result["step_seconds"][options.warmup:])
    result["peak_resident_bytes"] = sum(result["resident_bytes"])
    print(json.dumps(result))


def main():
    options = parse()
    if options.mode == "pipeline" and not is_rank():
        print(start_ranks(options.processes, options.threads)[0], end="")
    else:
        run(options)


if __name__ == "__main__":
    main()
