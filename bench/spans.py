"""What the rows of a trace of `strata train --trace` add up to in a step."""

import statistics


def spans_of(events, process):
    """By thread: (kind, begin, end) in seconds."""
    pid = next(e["pid"] for e in events
               if e["name"] == "process_name" and e["args"]["name"] == process)
    names = {e["tid"]: e["args"]["name"] for e in events
             if e["name"] == "thread_name" and e["pid"] == pid}
    threads = {name: [] for name in names.values()}
    for e in events:
        if e["ph"] == "X" and e["pid"] == pid:
            threads[names[e["tid"]]].append((e["cat"], e["ts"] / 1e6, (e["ts"] + e["dur"]) / 1e6))
    return threads


def summed(intervals):
    return sum(end - begin for begin, end in intervals)


def covered(intervals):
    """Seconds in which at least one of them is under way."""
    seconds, until = 0.0, float("-inf")
    for begin, end in sorted(intervals):
        seconds += max(0.0, end - max(begin, until))
        until = max(until, end)
    return seconds


def middle_step(spans, kinds, norms, warmup, total=summed):
    """Median seconds of these kinds, over steps: from the end of one gradient norm to that of the next."""
    begins, seconds = [0.0, *norms[:-1]], []
    for begin, end in list(zip(begins, norms))[warmup:]:
        seconds.append(total([s[1:] for s in spans if begin <= s[1] < end and s[0] in kinds]))
    return statistics.median(seconds)
