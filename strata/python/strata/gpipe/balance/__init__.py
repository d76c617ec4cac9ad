"""Finds how many layers each partition should have, by measuring a sample."""

from strata.gpipe.balance import blockpartition
from strata.gpipe.balance.profile import profile_sizes, profile_times

__all__ = ["balance_by_time", "balance_by_size", "blockpartition"]


def balance_by_time(partitions, module, sample, *, timeout=1.0, device="cuda"):
    """Balances the seconds of forward and backward. The layers are measured on copies, for about `timeout`
    seconds. `sample`: a micro-batch."""
    return _balance(profile_times(module, sample, timeout, device), partitions)


def balance_by_size(partitions, module, input, *, chunks=1, param_scale=2.0, device="cuda"):  # noqa: A002
    """Balances bytes: what each layer keeps for the backward of a micro-batch, and its parameters times
    `param_scale` (2 for a gradient beside each, 4 with Adam's states). `input`: a mini-batch."""
    return _balance(profile_sizes(module, input, chunks, param_scale, device), partitions)


def _balance(costs, partitions):
    return [len(block) for block in blockpartition.solve(costs, partitions)]
