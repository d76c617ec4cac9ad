#!/usr/bin/env python3
"""Compares AdamW on the host with PyTorch's and DeepSpeed's: interleaved rounds, medians, a table.

    python3 bench/host_adam/run.py [--rounds 7] [--sizes 20 22 24 26 28] [--deepspeed FOLDER]

What is claimed and how it is measured: bench/host_adam/README.md.
"""

import argparse
import os
import statistics
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import contest  # noqa: E402
from contest import summary  # noqa: E402
from resident import ROOT  # noqa: E402

PROGRAM = ROOT / "build/release/bench/host_adam/host_adam"

# Bytes per parameter of a step that reads and writes each array once.
BYTES = {"split": 26, "copy": 28, "fp32": 28, "aten": 40, "aten-fp32": 28, "deepspeed": 40,
         "limit-split": 26, "limit-copy": 28, "limit-fp32": 28}
TITLES = {"split": "Strata, 16 + 16 bit weights", "copy": "Strata, fp32 weights and a bf16 copy",
          "fp32": "Strata, all fp32", "aten": "at::_fused_adamw_ and its casts",
          "aten-fp32": "at::_fused_adamw_, all fp32", "deepspeed": "DeepSpeedCPUAdam and its casts",
          "limit-split": "streams of 16 + 16 bit", "limit-copy": "streams of fp32 and a copy",
          "limit-fp32": "streams of fp32"}
LIMITS = {"split": "limit-split", "copy": "limit-copy", "fp32": "limit-fp32"}
PEERS = {"split": ("aten", "deepspeed"), "copy": ("aten", "deepspeed"), "fp32": ("aten-fp32",)}


def options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--sizes", type=int, nargs="+", default=[20, 22, 24, 26, 28],
                        help="parameters, as powers of two")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--seconds", type=float, default=0.1, help="of measured steps, a turn")
    parser.add_argument("--only", nargs="+", choices=BYTES, help="these contestants")
    parser.add_argument("--deepspeed", help="folder where DeepSpeed is installed")
    parsed = parser.parse_args()
    if not PROGRAM.exists():
        sys.exit(f"run: no {PROGRAM}; run `ninja -C build/release host_adam` first")
    return parsed


def program_of(command, numel, chosen, variables=None):
    """A contestant of that size, whose answer is the seconds of its steps."""
    return contest.Program([*command, str(numel), str(chosen.threads), str(chosen.seconds)],
                           {"OMP_NUM_THREADS": str(chosen.threads), **(variables or {})})


def rounds_of(names, numel, chosen):
    ours = program_of([str(PROGRAM)], numel, chosen)
    programs = {name: ours for name in names}
    if "deepspeed" in names:
        programs["deepspeed"] = program_of(
            [contest.PYTHON, str(HERE / "deepspeed_peer.py")], numel, chosen,
            {"PYTHONPATH": str(Path(chosen.deepspeed).resolve())})
    results = []
    for number in range(-1, chosen.rounds):  # round -1 finds the pages, and doesn't count
        # Every other round runs in reverse order, so that no contestant always follows another.
        order = names if number % 2 == 0 else names[::-1]
        seconds = {name: statistics.median(programs[name].ask(name)) for name in order}
        results.append({name: {"seconds": seconds[name],
                               "parameters_per_second": numel / seconds[name],
                               "bytes_per_second": numel * BYTES[name] / seconds[name]}
                        for name in names})
        rates = "  ".join(f"{name} {numel / seconds[name] / 1e9:.2f}" for name in names)
        print(f"{numel:>10}  round {number + 1}/{chosen.rounds}  {rates}", file=sys.stderr)
    for program in set(programs.values()):
        program.end()
    return results[1:]


def ratios(rounds, name, peers):
    """Per round: our rate over the best of the peers'."""
    return summary([r[name]["parameters_per_second"]
                    / max(r[peer]["parameters_per_second"] for peer in peers) for r in rounds])


def summarise(rounds, names):
    result = {name: {field: summary([r[name][field] for r in rounds]) for field in rounds[0][name]}
              for name in names}
    for name in names:
        peers = [peer for peer in PEERS.get(name, ()) if peer in names]
        if peers:
            result[name]["against_best_peer"] = ratios(rounds, name, peers)
            result[name]["against"] = {peer: ratios(rounds, name, (peer,)) for peer in peers}
        if LIMITS.get(name) in names:
            result[name]["of_limit"] = ratios(rounds, name, (LIMITS[name],))
    return result


def spread(value, form):
    return f"{value['median']:{form}} ({value['min']:{form}} – {value['max']:{form}})"


def table(results):
    lines = ["| parameters | contestant | G parameters/s, median (min – max) | GB/s | "
             "of the streaming limit | against the better peer |",
             "| --- | --- | --- | --- | --- | --- |"]
    for numel, result in results.items():
        for name, entry in result.items():
            rate = {key: value / 1e9 for key, value in entry["parameters_per_second"].items()}
            limit = entry.get("of_limit")
            better = entry.get("against_best_peer")
            lines.append(
                f"| 2^{int(numel).bit_length() - 1} | {TITLES[name]} | {spread(rate, '.2f')} | "
                f"{entry['bytes_per_second']['median'] / 1e9:.1f} | "
                f"{spread(limit, '.0%') if limit else ''} | "
                f"{spread(better, '.2f') + '×' if better else ''} |")
    return "\n".join(lines)


def main():
    chosen = options()
    names = [name for name in BYTES if not chosen.only or name in chosen.only]
    if not chosen.deepspeed and "deepspeed" in names:
        names.remove("deepspeed")
        print("run: without DeepSpeed; bench/host_adam/README.md says how to have it", file=sys.stderr)
    rounds = {1 << size: rounds_of(names, 1 << size, chosen) for size in chosen.sizes}
    results = {numel: summarise(entries, names) for numel, entries in rounds.items()}
    print("\n" + table(results))
    contest.write(HERE, chosen, {"sizes": results}, rounds)


if __name__ == "__main__":
    main()
