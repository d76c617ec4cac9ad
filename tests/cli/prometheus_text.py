"""Parses the text format of Prometheus, version 0.0.4, strictly: raises ValueError at the first line that breaks it."""

import math
import re

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\\\|\\"|\\n)*)"')
SAMPLE = re.compile(rf"({NAME})(?:\{{(.*)\}})? (\S+)")
TYPES = {"counter", "gauge", "histogram", "summary", "untyped"}


def labels_of(text):
    labels, at = {}, 0
    while at < len(text):
        found = LABEL.match(text, at)
        if not found or found[1] in labels:
            raise ValueError(f"labels {text!r}")
        labels[found[1]], at = found[2], found.end()
        if at < len(text):
            if text[at] != "," or at + 1 == len(text):
                raise ValueError(f"labels {text!r}")
            at += 1
    return labels


def check_histogram(name, samples):
    """Buckets never fall, end at +Inf, and agree with _count; _sum is there: for each set of other labels."""
    series = {}
    for (sample, labels), value in samples.items():
        others = tuple(pair for pair in labels if pair[0] != "le")
        series.setdefault(others, {}).setdefault(sample, []).append((dict(labels).get("le"), value))
    for others, parts in series.items():
        buckets = [(float(bound), value) for bound, value in parts[f"{name}_bucket"]]
        values = [value for _, value in sorted(buckets)]
        if values != sorted(values) or max(buckets)[0] != math.inf:
            raise ValueError(f"{name}{others}: buckets {buckets}")
        if parts[f"{name}_count"] != [(None, values[-1])] or len(parts[f"{name}_sum"]) != 1:
            raise ValueError(f"{name}{others}: _count or _sum")


def parse(text):
    """{family: (type, {(sample name, ((label, value), ...)): number})}."""
    if not text.endswith("\n"):
        raise ValueError("the last line has no end")
    families, helped, family = {}, set(), None
    for line in text[:-1].split("\n"):
        if found := re.fullmatch(rf"# HELP ({NAME}) (.*)", line):
            if found[1] in helped:
                raise ValueError(f"second {line!r}")
            helped.add(found[1])
        elif found := re.fullmatch(rf"# TYPE ({NAME}) (\w+)", line):
            if found[1] in families or found[2] not in TYPES:
                raise ValueError(line)
            family = found[1]
            families[family] = (found[2], {})
        elif found := SAMPLE.fullmatch(line):
            if family is None:
                raise ValueError(f"{line!r} precedes every TYPE")
            kind, samples = families[family]
            suffixes = ("_bucket", "_sum", "_count") if kind == "histogram" else ("",)
            if found[1] not in [family + suffix for suffix in suffixes]:
                raise ValueError(f"{line!r} is among the samples of {family}")
            key = found[1], tuple(sorted(labels_of(found[2] or "").items()))
            if key in samples:
                raise ValueError(f"second {line!r}")
            samples[key] = float(found[3])
            if kind == "counter" and not samples[key] >= 0:
                raise ValueError(line)
        else:
            raise ValueError(f"no line of the format: {line!r}")
    for name, (kind, samples) in families.items():
        if name not in helped or not samples:
            raise ValueError(f"{name} has no HELP or no samples")
        if kind == "counter" and not name.endswith("_total"):
            raise ValueError(f"counter {name} does not end with _total")
        if kind == "histogram":
            check_histogram(name, samples)
    return families
