#!/usr/bin/env python3
"""GPipe's Table 2 by simulation: AmoebaNet-D (18, 256) at 224 x 224 on K ranks with M micro-batches, from layers measured here.

    python3 bench/graph/gpipe_speed.py [--layers 18] [--width 256] [--folder FOLDER]

Exports the model, measures every distinct layer on one sample, and plans GPipe's schedule with recomputation for each K and M: the planner
cuts the layers and simulates the step. Throughput is relative to K = 2, M = 1, as in the table. Nothing is trained.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
# (K, M): GPipe (Huang et al. 2019, table 2, TPUv3) and torchgpipe (Kim et al. 2020, table 3, P40).
PUBLISHED = {(2, 1): (1, 1), (2, 4): (1.07, 1.539), (2, 32): (1.21, 1.773), (4, 1): (1.13, 1.004), (4, 4): (1.26, 1.666),
             (4, 32): (1.84, 2.709), (8, 1): (1.38, 0.932), (8, 4): (1.72, 2.621), (8, 32): (3.48, 4.953)}


def planned(model, ranks, micro_batches, folder):
    """Predicted seconds of a step on ranks with a core each, and the number of layers of each stage."""
    plan = folder / "plan.json"
    fields = {"data.inputs": "none.npy", "data.targets": "none.npy", "data.validation_fraction": 0, "train.mini_batch": micro_batches,
              "train.micro_batch": 1, "train.optimizer.kind": "sgd", "memory.recompute": "full", "memory.device": "200GiB",
              "mesh.pp": ranks, "mesh.threads": 1, "mesh.schedule": "gpipe"}
    words = [word for name, value in fields.items() for word in ("--set", f"{name}={value}")]
    done = subprocess.run([ROOT / "build/release/strata", "plan", "--model", model, "--json", plan, *words],
                          capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(done.stderr)
    found = json.loads(plan.read_text())
    # The planner counts that the ranks share this machine's cores; the table's ranks share nothing.
    shared = max(1.0, ranks / os.cpu_count())
    return found["step_seconds"] / shared, [len(stage["layers"]) for stage in found["stages"]]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--layers", type=int, default=18)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--folder", help="for the model (default: a temporary one)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as scratch:
        folder = pathlib.Path(scratch)
        model = folder / "model.pt2"
        subprocess.run([sys.executable, ROOT / "examples/vision/export.py", "amoebanet", str(options.layers), str(options.width), "--out", model],
                       check=True, stdout=subprocess.DEVNULL)
        first = None
        print("| K | M | simulated | GPipe | torchgpipe | layers of each stage |\n| --- | --- | --- | --- | --- | --- |")
        for (ranks, micro_batches), (gpipe, torchgpipe) in PUBLISHED.items():
            seconds, cut = planned(model, ranks, micro_batches, folder)
            rate = micro_batches / seconds
            first = first or rate
            print(f"| {ranks} | {micro_batches} | {rate / first:.2f} | {gpipe} | {torchgpipe} | {' '.join(map(str, cut))} |", flush=True)


if __name__ == "__main__":
    main()
