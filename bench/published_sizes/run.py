#!/usr/bin/env python3
"""Compares the largest published models of other systems with Strata's ledger for the same machines.

    python3 bench/published_sizes/run.py [--json FILE]

What is compared and what is not: bench/published_sizes/README.md.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
PROGRAM = ROOT / "build/release/strata"

DEVICE, OFFLOAD, WINDOW = range(3)  # of `largest` in a plan's JSON: nothing, states and gradients, all


@dataclass(frozen=True)
class Published:
    name: str
    machine: str          # file
    width: int
    heads: int
    batch: int
    placement: int
    convention: str       # the peer's bytes a parameter
    precision: str        # Strata's
    parameters: float     # published
    layers: int = 0       # blocks, published; 0: not known
    note: str = ""


STRONGHOLD = {"machine": "v100-stronghold.yaml", "width": 2048, "heads": 16, "batch": 4, "convention": "fp32",
              "precision": "fp32"}
DGX2 = {"machine": "v100-dgx2.yaml", "width": 4096, "heads": 32, "batch": 1, "precision": "bf16"}

TABLE = (
    Published("Megatron-LM", placement=DEVICE, layers=32, parameters=1.717e9, **STRONGHOLD),
    Published("ZeRO-Offload", placement=OFFLOAD, layers=48, parameters=2.522e9,
              note="its host memory is pinned in powers of two", **STRONGHOLD),
    Published("L2L", placement=WINDOW, layers=78, parameters=4.033e9, **STRONGHOLD),
    Published("STRONGHOLD", placement=WINDOW, layers=100, parameters=5.141e9, **STRONGHOLD),
    Published("in memory (ZeRO-Offload's paper)", placement=DEVICE, convention="megatron-fp16", parameters=1.4e9,
              **{**DGX2, "width": 2048, "heads": 16}),
    Published("ZeRO-Offload (its paper)", placement=OFFLOAD, convention="zero-paper", parameters=13e9, **DGX2),
)


def recipe(row, clip):
    return (f"model: {{kind: gpt, layers: 2, width: {row.width}, heads: {row.heads}, vocab: 50304, context: 1024, "
            f"dropout: 0.0}}\n"
            f"data: {{train: text}}\n"
            f"train: {{mini_batch: {row.batch}, micro_batch: {row.batch}, precision: {row.precision}, clip: {clip}}}\n"
            f"memory: {{recompute: full}}\n")


def largest(row, clip, convention=None):
    """What `strata plan` finds for each placement: layers and parameters."""
    with tempfile.TemporaryDirectory() as folder:
        path, plan = Path(folder) / "recipe.yaml", Path(folder) / "plan.json"
        path.write_text(recipe(row, clip))
        command = [PROGRAM, "plan", path, "--machine", ROOT / "machines" / row.machine, "--json", plan]
        if convention:
            command += ["--convention", convention]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(done.stderr)
        return json.loads(plan.read_text())["largest"]


def compared(row):
    # Peers keep every gradient until the update: with clipping, so does the ledger.
    peer = largest(row, clip=1.0, convention=row.convention)[row.placement]
    exact = max(largest(row, clip=1.0), key=lambda tier: tier["layers"])
    at_once = max(largest(row, clip=0), key=lambda tier: tier["layers"])
    return {"system": row.name, "machine": row.machine, "width": row.width, "convention": row.convention,
            "placement": peer["placement"], "note": row.note,
            "published": {"layers": row.layers, "parameters": row.parameters},
            "reproduced": {"layers": peer["blocks"], "parameters": peer["parameters"]},
            "strata": {"layers": exact["blocks"], "parameters": exact["parameters"],
                       "placement": exact["placement"]},
            "strata_without_clipping": {"layers": at_once["blocks"], "parameters": at_once["parameters"],
                                        "placement": at_once["placement"]}}


def size(entry):
    layers = f"{entry['layers']} blocks, " if entry["layers"] else ""
    return f"{layers}{entry['parameters'] / 1e9:.2f} G"


def table(rows):
    lines = ["| system | published | its bytes and placement in Strata's ledger | Strata, `clip: 1` (the default) | "
             "Strata, `clip: 0` |", "| --- | --- | --- | --- | --- |"]
    for row in rows:
        lines.append(f"| {row['system']} | {size(row['published'])} | {size(row['reproduced'])} | "
                     f"{size(row['strata'])} | {size(row['strata_without_clipping'])} |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", help="write the figures to this file, too")
    options = parser.parse_args()
    if not PROGRAM.exists():
        sys.exit(f"run: no {PROGRAM}; run `ninja -C build/release strata` first")
    rows = [compared(row) for row in TABLE]
    print(table(rows))
    if options.json:
        Path(options.json).write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
