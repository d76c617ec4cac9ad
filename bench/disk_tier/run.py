#!/usr/bin/env python3
"""Compares chunk files with a plain O_DIRECT reader and writer of the same file: interleaved rounds, medians.

    python3 bench/disk_tier/run.py [--folder FOLDER] [--rounds 7] [--chunks 64] [--chunk-mib 16] [--depth 16]

What is claimed and how it is measured: bench/disk_tier/README.md.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import contest  # noqa: E402
from resident import ROOT  # noqa: E402

PROGRAM = ROOT / "build/release/bench/disk_tier/disk_tier_bench"
PAIRS = [(f"chunk {way}{memory}", f"plain {way}") for way in ("read", "write")
         for memory in ("", ", tensors' memory")]


def options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", default=str(ROOT / "build"), help="on the disk to measure")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--chunks", type=int, default=64)
    parser.add_argument("--chunk-mib", type=int, default=16)
    parser.add_argument("--depth", type=int, default=16, help="blocks of 1 MiB under way")
    parser.add_argument("--threads", action="store_true", help="preadv and pwritev, not io_uring")
    return parser.parse_args()


def measure(requested):
    with tempfile.TemporaryDirectory(dir=requested.folder) as folder:
        command = [str(PROGRAM), folder + "/chunks", str(requested.rounds),
                   str(requested.chunks), str(requested.chunk_mib), str(requested.depth)]
        rounds = []
        with subprocess.Popen(command + ["threads"] * requested.threads, stdout=subprocess.PIPE,
                              text=True) as bench:
            for line in bench.stdout:
                rounds.append(json.loads(line))
                print(f"round {len(rounds)}/{requested.rounds}", file=sys.stderr)
        if bench.returncode != 0:
            sys.exit(bench.returncode)
    return rounds


def summarise(rounds):
    result = {"contestants": {name: {field: contest.summary([r[name][field] for r in rounds])
                                     for field in rounds[0][name]} for name in rounds[0]}}
    result["shares"] = {ours: contest.summary([r[ours]["bytes_per_second"]
                                               / r[plain]["bytes_per_second"] for r in rounds])
                        for ours, plain in PAIRS}
    return result


def table(result):
    lines = ["| contestant | GB/s, median | min – max | IQR | processor s a GiB | of plain | min – max |",
             "| --- | --- | --- | --- | --- | --- | --- |"]
    for name, entry in result["contestants"].items():
        rate, share = entry["bytes_per_second"], result["shares"].get(name)
        of_plain = (f"{share['median']:.0%} | {share['min']:.0%} – {share['max']:.0%}" if share
                    else " | ")
        lines.append(f"| {name} | {rate['median'] / 1e9:.2f} | {rate['min'] / 1e9:.2f} – "
                     f"{rate['max'] / 1e9:.2f} | {rate['iqr'] / 1e9:.2f} | "
                     f"{entry['processor_seconds_per_gib']['median']:.2f} | {of_plain} |")
    return "\n".join(lines)


def main():
    requested = options()
    if not PROGRAM.exists():
        sys.exit(f"run: no {PROGRAM}; run `ninja -C build/release disk_tier_bench` first")
    rounds = measure(requested)
    result = summarise(rounds)
    print("\n" + table(result))
    contest.write(HERE, requested, result, rounds)


if __name__ == "__main__":
    main()
