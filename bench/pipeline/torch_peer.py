#!/usr/bin/env python3
"""Runs one PyTorch contestant for a few steps and prints one JSON object.

    torch_peer.py eager --threads 2             one process, gradients accumulated
    torch_peer.py pipeline --schedule 1f1b      torch.distributed.pipelining on Gloo, 2 processes
    torch_peer.py gemm --processes 2            rate of the model's matrix products, processes summed

This file imports no torch, so that the process which starts a pipeline's ranks stays small; only
the ranks are measured.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("mode", choices=["eager", "pipeline", "gemm"])
    parser.add_argument("--schedule", choices=["gpipe", "1f1b"], default="1f1b")
    parser.add_argument("--processes", type=int, default=None, help="pipeline: 2, gemm: 1")
    parser.add_argument("--threads", type=int, default=1, help="per process")
    parser.add_argument("--steps", type=int, default=4, help="measured steps")
    parser.add_argument("--warmup", type=int, default=2, help="steps before them")
    parser.add_argument("--seconds", type=float, default=2.0, help="of the gemm mode")
    for name, value in (("layers", 6), ("width", 384), ("heads", 6), ("vocab", 256),
                        ("context", 256), ("mini-batch", 32), ("micro-batch", 4)):
        parser.add_argument("--" + name, type=int, default=value)
    options = parser.parse_args()
    if options.processes is None:
        options.processes = 2 if options.mode == "pipeline" else 1
    if options.mini_batch % options.micro_batch:
        parser.error("--micro-batch must divide --mini-batch: torch's schedules take no remainder")
    return options


def start_ranks(options):
    """Starts this program once a rank and returns what the ranks printed."""
    with tempfile.TemporaryDirectory() as folder:
        environment = dict(os.environ, WORLD_SIZE=str(options.processes),
                           PEER_RENDEZVOUS=f"file://{folder}/store", GLOO_SOCKET_IFNAME="lo",
                           OMP_NUM_THREADS=str(options.threads))
        ranks = [subprocess.Popen([sys.executable, *sys.argv], stdout=subprocess.PIPE, text=True,
                                  env=dict(environment, RANK=str(rank)))
                 for rank in range(options.processes)]
        printed = [rank.communicate()[0] for rank in ranks]
    if any(rank.returncode for rank in ranks):
        sys.exit("torch_peer: a rank failed: " + str([rank.returncode for rank in ranks]))
    return printed


def run_rank(options):
    import torch_gpt

    sizes = torch_gpt.Sizes(options.layers, options.width, options.heads, options.vocab,
                            options.context, options.mini_batch, options.micro_batch)
    steps = options.warmup + options.steps
    if options.mode == "gemm":
        rate = torch_gpt.gemm_flops_per_second(sizes, options.seconds, options.threads)
        return {"flops_per_second": rate}
    if options.mode == "eager":
        result = torch_gpt.train_eager(sizes, steps, options.threads)
    else:
        result = torch_gpt.train_pipeline(sizes, steps, options.threads, options.schedule)
    if result is None:
        return None
    result["tokens_per_second"] = sizes.tokens / statistics.median(
        result["step_seconds"][options.warmup:])
    result["peak_resident_bytes"] = sum(result["resident_bytes"])
    return result


def main():
    options = parse()
    starts_others = options.mode == "pipeline" or options.processes > 1
    if starts_others and "RANK" not in os.environ:
        printed = start_ranks(options)
        if options.mode == "gemm":
            rates = [json.loads(text)["flops_per_second"] for text in printed]
            print(json.dumps({"flops_per_second": sum(rates)}))
        else:
            print(printed[0], end="")
        return
    result = run_rank(options)
    if result is not None:
        print(json.dumps(result))


if __name__ == "__main__":
    main()
