#!/usr/bin/env python3
"""Compares `strata generate` with transformers and its cache: interleaved rounds, medians, a table.

    python3 bench/generate/run.py [--rounds 7] [--tokens 200] [--model FOLDER]

What is claimed and how it is measured: bench/generate/README.md.
"""

import argparse
import json
import resource
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import contest  # noqa: E402
from contest import ROOT, summary  # noqa: E402

STORIES = ROOT.parent / "shared/data/models/stories260K"


def ours(options, tokens):
    """Wall and processor seconds of the whole command, and its text."""
    command = [contest.STRATA, "generate", str(options.model), "--temperature", "0", "--tokens",
               str(tokens), "--set", "mesh.threads=1"]
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    seconds, after = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
    busy = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return seconds, busy, done.stdout.strip()


def theirs(options):
    command = [contest.PYTHON, str(HERE / "torch_peer.py"), str(options.model), "--tokens",
               str(options.tokens)]
    begin = time.perf_counter()
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    whole = time.perf_counter() - begin
    result = json.loads(done.stdout.splitlines()[-1])
    return result, whole


def measure(options):
    seconds, busy, text = ours(options, options.tokens)
    start, start_busy, _ = ours(options, 1)
    peer, peer_whole = theirs(options)
    if not text or text != peer["text"].strip()[:len(text)]:
        sys.exit(f"run: other text\n  strata        {text}\n  transformers  {peer['text']}")
    return {"strata, whole command": seconds, "strata, one token": start,
            "transformers, generate() alone": peer["seconds"],
            "transformers, whole command": peer_whole,
            "strata, processor, whole command": busy, "strata, processor, one token": start_busy,
            "transformers, processor, generate() alone": peer["processor_seconds"],
            "ratio": peer["seconds"] / seconds,
            "ratio, processor": peer["processor_seconds"] / busy,
            "ratio, processor, behind the first token": peer["processor_seconds"] / max(
                busy - start_busy, 1e-3)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--model", type=Path, default=STORIES)
    parser.add_argument("--busy", type=int, default=2, help="busy processes in the second half")
    options = parser.parse_args()
    if not Path(contest.STRATA).exists() or not options.model.is_dir():
        sys.exit(f"run: needs {contest.STRATA} and {options.model}")
    rounds = {"quiet": [], f"beside {options.busy} busy": []}
    for number in range(options.rounds):
        for name, busy in zip(rounds, (0, options.busy)):
            with contest.busy_processes(busy):
                rounds[name].append(measure(options))
            print(f"round {number + 1}/{options.rounds}  {name:14} "
                  f"{rounds[name][-1]['ratio']:.2f}x", file=sys.stderr)
    result = {name: {field: summary([r[field] for r in entries]) for field in entries[0]}
              for name, entries in rounds.items()}
    print("| machine | measure | median | min – max |\n| --- | --- | --- | --- |")
    for name, fields in result.items():
        for field, entry in fields.items():
            unit = "×" if field.startswith("ratio") else " s"
            print(f"| {name} | {field} | {entry['median']:.2f}{unit} | "
                  f"{entry['min']:.2f} – {entry['max']:.2f} |")
    contest.write(HERE, argparse.Namespace(**{**vars(options), "model": str(options.model)}),
                  result, rounds)


if __name__ == "__main__":
    main()
