"""GPipe: a module that runs a sequence in partitions."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

import torch
from torch import nn

from strata.gpipe import micro_batches
from strata.gpipe.batchnorm import DeferredBatchNorm
from strata.gpipe.cells import Partition
from strata.gpipe.engine import Engine
from strata.gpipe.skip.skippable import skip_stages, verify_skippables

__all__ = ["GPipe", "verify_module"]

_CHECKPOINTS = ("always", "except_last", "never")


class GPipe(nn.Module):
    """Runs an nn.Sequential in partitions, each on a device, and a mini-batch in micro-batches.

    Input and output, also between partitions, are a tensor or a tuple of tensors, whose first dimension is the
    samples. The gradients are those of the sequence, summed over micro-batches in ascending order.

    Args:
        module: an nn.Sequential whose children differ and share no parameter.
        balance: how many layers each partition has; strata.gpipe.balance finds one.
        devices: one for each partition; further ones are left. "cpu" so far: no GPU has run it.
        chunks: how many micro-batches a mini-batch is cut into, at most.
        checkpoint: which micro-batches keep only the inputs of partitions and run their forward again in the
            backward: "always" (all), "except_last", "never".
        deferred_batch_norm: running statistics of batch norm move once a mini-batch.

    Raises:
        TypeError: no nn.Sequential, or skips that do not match.
        ValueError: a balance that does not fit, chunks below 1, an unknown checkpoint.
        IndexError: fewer devices than partitions.
    """

    def __init__(self, module: nn.Sequential, balance: Iterable[int] | None = None, *, devices: Iterable | None = None, chunks: int = 1,
                 checkpoint: str = "except_last", deferred_batch_norm: bool = False):
        super().__init__()
        chunks, checkpoint = int(chunks), str(checkpoint)
        if balance is None:
            raise ValueError(_with_advice("balance is required"))
        if chunks < 1:
            raise ValueError(f"chunks: expected 1 or more, got {chunks}")
        if checkpoint not in _CHECKPOINTS:
            raise ValueError("checkpoint is not one of 'always', 'except_last', or 'never'")
        verify_module(module)
        verify_skippables(module)
        if deferred_batch_norm:
            module = DeferredBatchNorm.convert_deferred_batch_norm(module, chunks)
        devices = [torch.device(device) for device in (range(torch.cuda.device_count()) if devices is None else devices)]
        if any(device.type != "cpu" for device in devices):
            raise ValueError("no GPU has run GPipe yet: pass devices=['cpu', ...], or train with strata.Pipeline")
        #: How many layers each partition has, and its device; micro-batches; what is recomputed.
        self.balance = [int(count) for count in balance]
        _verify_balance(self.balance, module, devices)
        self.devices = devices[: len(self.balance)]
        self.chunks = chunks
        self.checkpoint = checkpoint
        self.partitions = nn.ModuleList(_partitions(module, self.balance, self.devices))

    def forward(self, input):  # noqa: A002: torchgpipe's name
        micro_batches.check(input)
        if not self.partitions:
            return input
        stop = {"always": self.chunks, "except_last": self.chunks - 1, "never": 0}[self.checkpoint] if self.training else 0
        return self._engine().run(input, self.chunks, stop)

    def __len__(self):
        return sum(self.balance)

    def __iter__(self):
        for partition in self.partitions:
            yield from partition

    def __getitem__(self, index):
        return list(self)[index]

    def cuda(self, device=None):
        raise _moving_denied()

    def cpu(self):
        raise _moving_denied()

    def to(self, *args, **kwargs):
        """Casts; a GPipe's layers stay on their devices."""
        by_place = args and isinstance(args[0], (torch.device, int, str, torch.Tensor))
        if by_place or "device" in kwargs or "tensor" in kwargs:
            raise _moving_denied()
        return super().to(*args, **kwargs)

    def _engine(self):
        # Not an attribute that is copied or saved: it has threads.
        if "_threads" not in self.__dict__:
            self.__dict__["_threads"] = Engine(list(self.partitions), self.devices, skip_stages(self.partitions))
        return self.__dict__["_threads"]

    def __getstate__(self):
        return {name: value for name, value in self.__dict__.items() if name != "_threads"}


def verify_module(module):
    """Refuses what cannot be cut into partitions."""
    if not isinstance(module, nn.Sequential):
        raise TypeError("module must be nn.Sequential to be partitioned")
    if len(list(module.named_children())) != len(module):
        raise ValueError("module with duplicate children is not supported")
    if len(list(module.parameters())) != sum(len(list(child.parameters())) for child in module.children()):
        raise ValueError("module with duplicate parameters in distinct children is not supported")


def _verify_balance(balance, module, devices):
    if sum(balance) != len(module):
        raise ValueError(_with_advice(f"the sum of balance is {sum(balance)}, and the module has {len(module)} layers"))
    if any(count < 1 for count in balance):
        raise ValueError(_with_advice(f"every number of balance must be positive, got {balance}"))
    if len(balance) > len(devices):
        raise IndexError(f"{len(balance)} partitions need as many devices, got {len(devices)}")


def _with_advice(message):
    return f"""{message}

strata.gpipe.balance (torchgpipe.balance) finds one:

    from strata.gpipe.balance import balance_by_time
    balance = balance_by_time(partitions, module, sample)
"""


def _partitions(module, balance, devices):
    layers, first = list(module.named_children()), 0
    for count, device in zip(balance, devices):
        yield Partition(OrderedDict(layers[first : first + count]), first).to(device)
        first += count


def _moving_denied():
    return TypeError("a GPipe's layers cannot be moved: each partition stays on its device")
