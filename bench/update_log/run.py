#!/usr/bin/env python3
"""Writes updates through the log of embedding servers and through RocksDB: interleaved rounds, medians, a table.

    python3 bench/update_log/run.py [--rounds 7] [--folder FOLDER]

What is measured and how: bench/update_log/README.md.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import contest  # noqa: E402
from contest import summary  # noqa: E402
from resident import ROOT  # noqa: E402

PROGRAM = ROOT / "build/release/bench/update_log/update_log_bench"
KINDS = {"log": "the log", "rocksdb": "RocksDB", "rocksdb-recycled": "RocksDB, recycled files"}
# Bytes of an update: updates of a turn. The large ones fill a memtable (64 MiB) twice.
SIZES = {4 << 10: 1000, 64 << 10: 500, 1 << 20: 64, 8 << 20: 16}


def call(*words):
    with tempfile.TemporaryDirectory(dir=call.folder) as folder:
        words = [folder if word == "FOLDER" else str(word) for word in words]
        done = subprocess.run([PROGRAM, *words], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(done.stderr)
    return json.loads(done.stdout)


def measure(kind, size):
    result = call("speed", kind, "FOLDER", size, SIZES[size])
    latencies = sorted(result["durable_seconds"])
    volume = 2 * size * SIZES[size]
    return {"durable_ms": 1e3 * statistics.median(latencies), "p99_ms": 1e3 * latencies[len(latencies) * 99 // 100],
            "stream_mib_s": volume / 2 / 2**20 / result["stream_seconds"],
            "read_mib_s": volume / 2**20 / result["read_seconds"], "written": result["written_bytes"] / volume}


def line(size, kind, rounds, results):
    def text(field, form):
        value = results[kind][field]
        return f"{value['median']:{form}} ({value['min']:{form}} – {value['max']:{form}})"

    against = [r[size, kind]["durable_ms"] / r[size, "log"]["durable_ms"] for r in rounds]
    stream = [r[size, kind]["stream_mib_s"] / r[size, "log"]["stream_mib_s"] for r in rounds]
    return (f"| {size >> 10} KiB | {KINDS[kind]} | {text('durable_ms', '.2f')} | {text('p99_ms', '.2f')} | "
            f"{text('stream_mib_s', '.0f')} | {text('read_mib_s', '.0f')} | {results[kind]['written']['median']:.2f} | "
            f"{statistics.median(against):.2f}× | {statistics.median(stream):.2f}× |")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--folder", help="on the disk that is measured (default: build/)")
    options = parser.parse_args()
    if not PROGRAM.exists():
        sys.exit(f"run: no {PROGRAM}; run `ninja -C build/release update_log_bench` first")
    call.folder = options.folder or ROOT / "build"
    rounds = []
    for number in range(options.rounds):
        # Every other round runs in reverse order, so that no contestant always follows another.
        order = list(KINDS) if number % 2 == 0 else list(KINDS)[::-1]
        rounds.append({(size, kind): measure(kind, size) for size in SIZES for kind in order})
        print(f"round {number + 1}/{options.rounds}", file=sys.stderr)
    print("| update | through | durable one by one, ms | p99, ms | stream, MiB/s | opened and read, MiB/s | "
          "bytes written per byte | time of one against the log | rate of the stream against the log |\n"
          "| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    found = {}
    for size in SIZES:
        results = {kind: {field: summary([r[size, kind][field] for r in rounds]) for field in rounds[0][size, kind]}
                   for kind in KINDS}
        found[size] = results
        for kind in KINDS:
            print(line(size, kind, rounds, results))
    damage = {kind: call("damage", kind, "FOLDER") for kind in KINDS}
    for kind, outcome in damage.items():
        print(f"\n{KINDS[kind]}: a changed byte in the middle: {outcome['flipped']}\n"
              f"{KINDS[kind]}: a cut last record: {outcome['cut']}")
    contest.write(HERE, options, {"sizes": found, "damage": damage},
                  [[{"bytes": size, "kind": kind, **result} for (size, kind), result in r.items()] for r in rounds])


if __name__ == "__main__":
    main()
