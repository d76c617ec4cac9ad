"""What the overlap of collectives with compute is made of, for every contestant that is asked."""

import statistics


def merged_seconds(intervals):
    """Length of the union of (begin, end)."""
    total, until = 0.0, float("-inf")
    for begin, end in sorted(intervals):
        total += max(0.0, end - max(begin, until))
        until = max(until, end)
    return total


def overlap_of(steps):
    """Medians over steps, and the shares of the collectives' time that were hidden.

    under_way_seconds  collectives were started and not yet collected
    wait_seconds       of these, the rank did nothing but wait
    slower_seconds     by how much the backward that reduces computed longer than those that don't
    """
    result = {name: statistics.median(step[name] for step in steps) for name in steps[0]}
    under_way = result["under_way_seconds"]
    result["hidden_share"] = 1 - result["wait_seconds"] / under_way
    result["hidden_share_of_wall"] = (
        1 - (result["wait_seconds"] + max(0.0, result["slower_seconds"])) / under_way)
    return result
