#!/usr/bin/env python3
"""Draws an hour's ids from 10^12 into a table under a budget of bytes: what it takes, what it hits, a table.

    python3 bench/embedding/budget.py [--ids 360000000] [--budget 268435456]

What is claimed and how it is measured: bench/embedding/README.md.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import contest  # noqa: E402
from resident import ROOT  # noqa: E402

PROGRAM = ROOT / "build/release/bench/embedding/budget_bench"
# Who goes, the updates before an id has a row, the steps that a row lives without one.
POLICIES = [("clock", 1, 0), ("clock", 2, 0), ("lfu", 1, 0), ("lfu", 2, 0), ("clock", 2, 200)]


def options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ids", type=int, default=360_000_000, help="of the last policy's run: an hour at 10^5 a second")
    parser.add_argument("--short", type=int, default=60_000_000, help="ids of the other policies")
    parser.add_argument("--budget", type=int, default=256 << 20, help="bytes")
    parser.add_argument("--long", type=int, default=3, help="number of the policy that has all ids")
    parser.add_argument("--uniform", type=float, default=0.3, help="share of the ids that are uniform")
    parser.add_argument("--period", type=int, default=2750,
                        help="steps of 65,536 ids after which another id has a rank")
    parsed = parser.parse_args()
    if not PROGRAM.exists():
        sys.exit(f"budget: no {PROGRAM}; run `ninja -C build/release budget_bench` first")
    return parsed


def run(chosen, ids, policy, threshold, steps_to_live):
    command = [str(PROGRAM), str(ids), str(chosen.budget), policy, str(threshold),
               str(steps_to_live), str(chosen.uniform), str(chosen.period)]
    lines = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout:
            lines.append(json.loads(line))
            print(f"{policy} {threshold} {steps_to_live}: {line.strip()}", file=sys.stderr)
    if process.returncode != 0:
        sys.exit(f"budget: {' '.join(command)} ended with {process.returncode}")
    return {"policy": policy, "threshold": threshold, "steps_to_live": steps_to_live, **lines[-1],
            "course": lines}


def table(results):
    lines = ["| evicts | an id has a row from update | steps to live | ids | rows | candidates | "
             "most bytes of the budget | allocated per row, without payload | hits | best | share | "
             "M ids/s of the table |", "| --- " * 12 + "|"]
    for entry in results:
        held = entry["rows"] + entry["candidates"]
        overhead = (entry["allocated_bytes"] - entry["rows"] * entry["payload_bytes"]) / held
        hits, best = entry["hit_rate_of_second_half"], entry["best_hit_rate"]
        cells = [entry["policy"], entry["threshold"], entry["steps_to_live"] or "for ever",
                 f"{entry['ids']:.2e}", entry["rows"], entry["candidates"],
                 f"{100 * entry['most_used_bytes'] / entry['budget_bytes']:.2f} %",
                 f"{overhead:.1f}", f"{hits:.3f}", f"{best:.3f}", f"{100 * hits / best:.0f} %",
                 f"{entry['ids'] / entry['table_seconds'] / 1e6:.1f}"]
        lines.append("| " + " | ".join(str(cell) for cell in cells) + " |")
    return "\n".join(lines)


def main():
    chosen = options()
    results = [run(chosen, chosen.ids if i == chosen.long else chosen.short, *policy)
               for i, policy in enumerate(POLICIES)]
    print("\n" + table(results))
    contest.write(HERE, chosen, {"runs": [{name: value for name, value in entry.items() if name != "course"}
                                          for entry in results]},
                  [entry["course"] for entry in results])


if __name__ == "__main__":
    main()
