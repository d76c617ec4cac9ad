"""Cuts a sequence of costs into blocks whose largest sum is as small as possible."""

from itertools import accumulate

__all__ = ["solve"]


def solve(sequence, partitions=1):
    """Returns the blocks. Each has at least one element; of equal cuts the one with the smallest sum of squares,
    then with earlier elements in earlier blocks, is taken. ValueError: fewer elements than blocks."""
    if partitions < 1:
        raise ValueError(f"partitions: expected 1 or more, got {partitions}")
    if len(sequence) < partitions:
        raise ValueError(f"{len(sequence)} elements cannot be cut into {partitions} blocks")
    sums = [0, *accumulate(sequence)]
    # best[end]: (largest sum, sum of squares, begins of the blocks) of the elements before `end`.
    best = {end: (sums[end], sums[end] ** 2, (0,)) for end in range(1, len(sums))}
    for blocks in range(2, partitions + 1):
        best = {end: min(_with_block(best[begin], sums[end] - sums[begin], begin) for begin in range(blocks - 1, end)) for end in range(blocks, len(sums))}
    begins = [*best[len(sequence)][2], len(sequence)]
    return [list(sequence[begin:end]) for begin, end in zip(begins, begins[1:])]


def _with_block(before, cost, begin):
    largest, squares, begins = before
    return max(largest, cost), squares + cost**2, (*begins, begin)
