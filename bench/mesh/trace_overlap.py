"""Reads from a Chrome trace of `strata train` how much of the gradients' reductions is hidden.

The kinds of spans are those of strata/schedule/action.h: B backward, DG starts to reduce a layer,
AG waits for it, GW replicas exchange updated weights, U update.
"""

import json
import statistics
from collections import defaultdict

from intervals import merged_seconds, overlap_of


def rank_events(path, rank=0):
    """The measured spans of one rank, in order: (kind, begin, end, arguments), seconds."""
    events = json.loads(path.read_text())["traceEvents"]
    measured = next(e["pid"] for e in events
                    if e["name"] == "process_name" and e["args"]["name"] == "measured")
    spans = [(e["cat"], e["ts"] / 1e6, (e["ts"] + e["dur"]) / 1e6, e["args"])
             for e in events if e["ph"] == "X" and e["pid"] == measured and e["tid"] == rank]
    return sorted(spans, key=lambda span: span[1])


def steps_of(spans):
    """Cuts at the first forward, or the fetch before it, after an update."""
    steps = [[]]
    for span in spans:
        if span[0] in ("F", "FW") and any(kind == "U" for kind, *_ in steps[-1]):
            steps.append([])
        steps[-1].append(span)
    return steps


def measures_of(step):
    started, under_way, waits, backwards = {}, [], 0.0, defaultdict(float)
    for kind, begin, end, arguments in step:
        layer = arguments.get("first_layer")
        if kind == "DG":
            started[layer] = begin
        elif kind == "AG":
            under_way.append((started.pop(layer), end))
        elif kind == "GW":
            under_way.append((begin, end))
        elif kind == "B":
            backwards[arguments["micro_batch"]] += end - begin
        # What starting a reduction takes is not hidden either.
        waits += end - begin if kind in ("DG", "AG", "GW") else 0.0
    last = max(backwards)
    others = [seconds for micro_batch, seconds in backwards.items() if micro_batch != last]
    slower = backwards[last] - statistics.median(others) if others else 0.0
    return {"under_way_seconds": merged_seconds(under_way), "wait_seconds": waits,
            "slower_seconds": slower}


def overlap(path):
    """{} for a run without replicas."""
    steps = steps_of(rank_events(path))
    if not any(span[0] == "DG" for span in steps[-1]):
        return {}
    return {"overlap": overlap_of([measures_of(step) for step in steps])}
