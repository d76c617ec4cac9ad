"""PyTorch's replicas: DistributedDataParallel, with or without sharded states, and FSDP2.

A replica is made once a process and trains with step(micro_batches), which returns this replica's
part of the mini-batch's mean loss.
"""

import statistics
import time
from contextlib import nullcontext

import torch
import torch.distributed as dist
from bucket_times import BucketTimes
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel
from torch_gpt import ADAMW, Stage, make_optimizer, token_loss, weight_groups


def clip(parameters):
    """Scales the gradients to a global norm of 1 at most; they are whole or DTensors."""
    norm = torch.nn.utils.get_total_norm([p.grad for p in parameters], foreach=True)
    if isinstance(norm, DTensor):
        norm = norm.full_tensor()
    torch.nn.utils.clip_grads_with_norm_(parameters, 1.0, norm, foreach=True)


class Replica:
    """DistributedDataParallel: gradients add up in no_sync, the last micro-batch's backward reduces
    them bucket by bucket."""

    def __init__(self, sizes, world, shards_states=False, times_buckets=False):
        model = Stage(sizes, 0, sizes.layers)
        self.model = DistributedDataParallel(model, gradient_as_bucket_view=True)
        self.parameters = list(model.parameters())
        if shards_states:
            self.optimizer = ZeroRedundancyOptimizer(
                weight_groups(model), optimizer_class=torch.optim.AdamW, **ADAMW)
        else:
            self.optimizer = make_optimizer(model)
        # Replicas average: each divides by its own tokens.
        self.loss_of, self.world = token_loss(sizes.tokens // world), world
        self.times = BucketTimes(self.model) if times_buckets else None

    def step(self, micro_batches):
        total = 0.0
        for x, y in micro_batches:
            last = y is micro_batches[-1][1]
            with nullcontext() if last else self.model.no_sync():
                loss = self.loss_of(self.model(x), y)
                with self.times.backward(last) if self.times else nullcontext():
                    loss.backward()
            total += loss.item()
        clip(self.parameters)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return total / self.world

    def overlap(self, warmup):
        return self.times.overlap(warmup)


class FullyShardedReplica:
    """FSDP2: every block and the root are sharded; weights are collected for each forward and each
    backward, gradients add up unsharded and are reduced after the last micro-batch."""

    def __init__(self, sizes, world):
        mesh = init_device_mesh("cpu", (world,))
        self.model = Stage(sizes, 0, sizes.layers)
        for block in self.model.blocks:
            fully_shard(block, mesh=mesh, reshard_after_forward=True)
        fully_shard(self.model, mesh=mesh, reshard_after_forward=True)
        self.parameters = list(self.model.parameters())
        self.optimizer = make_optimizer(self.model)
        self.loss_of, self.world = token_loss(sizes.tokens // world), world

    def step(self, micro_batches):
        total = 0.0
        for x, y in micro_batches:
            last = y is micro_batches[-1][1]
            self.model.set_is_last_backward(last)
            self.model.set_requires_gradient_sync(last)
            loss = self.loss_of(self.model(x), y)
            loss.backward()
            total += loss.item()
        clip(self.parameters)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return total / self.world


def seconds_alone(sizes, warmup, steps):
    """Median time of an all-reduce of the model's gradients, in one piece, between idle processes."""
    gradients = torch.zeros(sum(p.numel() for p in Stage(sizes, 0, sizes.layers).parameters()))
    seconds = []
    for _ in range(warmup + steps):
        dist.barrier()
        begin = time.perf_counter()
        dist.all_reduce(gradients)
        seconds.append(time.perf_counter() - begin)
    return statistics.median(seconds[warmup:])
