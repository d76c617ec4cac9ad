#!/usr/bin/env python3
"""Runs one data-parallel contestant, a process a replica on Gloo, and prints one JSON object.

    torch_peer.py ddp              DistributedDataParallel
    torch_peer.py ddp-zero1        the same with ZeroRedundancyOptimizer
    torch_peer.py fsdp2            fully_shard of every block
    torch_peer.py deepspeed-zero3  DeepSpeed; also -zero1, -zero2 and -zero3-lean
    torch_peer.py alone            the all-reduce of all gradients, without computation in parallel

All train from the same first weights on the same tokens, so their losses agree. With --overlap, ddp
says how much of its reductions is hidden. No torch here: only the ranks are measured.
"""

import argparse
import json
import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from ranks import is_rank, join, start_ranks  # noqa: E402
from sizes import add_sizes, sizes_of  # noqa: E402

CONTESTANTS = ["ddp", "ddp-zero1", "fsdp2", "deepspeed-zero1", "deepspeed-zero2", "deepspeed-zero3",
               "deepspeed-zero3-lean", "alone"]


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("contestant", choices=CONTESTANTS)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--threads", type=int, default=1, help="per process")
    parser.add_argument("--steps", type=int, default=4, help="measured steps")
    parser.add_argument("--warmup", type=int, default=2, help="steps before them")
    parser.add_argument("--overlap", action="store_true", help="ddp: times every bucket")
    add_sizes(parser)
    options = parser.parse_args()
    if options.mini_batch % (options.micro_batch * options.processes):
        parser.error("--micro-batch times --processes must divide --mini-batch")
    return options


def replica_of(options, sizes, world):
    """The contestant, as something that trains on a list of micro-batches and returns their loss."""
    if options.contestant.startswith("deepspeed"):
        from deepspeed_replica import DeepSpeedReplica

        level = options.contestant.removeprefix("deepspeed-zero")
        return DeepSpeedReplica(sizes, world, stage=int(level[0]), lean=level.endswith("lean"))
    from torch_replicas import FullyShardedReplica, Replica

    if options.contestant == "fsdp2":
        return FullyShardedReplica(sizes, world)
    return Replica(sizes, world, shards_states=options.contestant == "ddp-zero1",
                   times_buckets=options.overlap)


def train(options, sizes, rank, world):
    import torch
    from torch_gpt import make_batch, peak_resident_bytes, timed_steps

    at_start = peak_resident_bytes()
    torch.manual_seed(1)
    replica = replica_of(options, sizes, world)
    generator = torch.Generator().manual_seed(1)
    share = sizes.mini_batch // world
    losses = []

    def step():
        text = [part.narrow(0, rank * share, share).split(sizes.micro_batch)
                for part in make_batch(sizes, generator)]
        losses.append(replica.step(list(zip(*text))))

    seconds = timed_steps(options.warmup + options.steps, step)
    result = {"step_seconds": seconds, "losses": losses, "peak": peak_resident_bytes(),
              "start": at_start}
    if options.overlap:
        result["overlap"] = replica.overlap(options.warmup)
    return result


def gather(mine, rank, world):
    """What all ranks found; None but on rank 0."""
    import torch.distributed as dist

    everyone = [None] * world
    dist.all_gather_object(everyone, mine)
    dist.barrier()  # a rank that leaves while another still talks ends it
    dist.destroy_process_group()
    return None if rank else everyone


def run_rank(options):
    import torch

    torch.set_num_threads(options.threads)
    sizes = sizes_of(options)
    rank, world = join()
    if options.contestant == "alone":
        from torch_replicas import seconds_alone

        everyone = gather(seconds_alone(sizes, options.warmup, options.steps), rank, world)
        return everyone and {"collective_seconds": max(everyone)}
    everyone = gather(train(options, sizes, rank, world), rank, world)
    if not everyone:
        return None
    seconds = [max(times) for times in zip(*(m["step_seconds"] for m in everyone))]
    result = {"step_seconds": seconds,
              "losses": [sum(parts) for parts in zip(*(m["losses"] for m in everyone))],
              "resident_bytes": [m["peak"] for m in everyone],
              "resident_bytes_at_start": [m["start"] for m in everyone],
              "tokens_per_second": sizes.tokens / statistics.median(seconds[options.warmup:])}
    if options.overlap:
        result["overlap"] = everyone[0]["overlap"]
    return result


def main():
    options = parse()
    if not is_rank():
        print(start_ranks(options.processes, options.threads)[0], end="")
        return
    result = run_rank(options)
    if result is not None:
        print(json.dumps(result))


if __name__ == "__main__":
    main()
