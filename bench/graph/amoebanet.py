#!/usr/bin/env python3
"""GPipe's Table 1 by bytes: AmoebaNet-D (L, D) at 224 x 224, 128 samples in 128 micro-batches, under 8 GB a rank.

    python3 bench/graph/amoebanet.py [--rows 18x416x1,18x544x1,36x544x2] [--folder FOLDER]

Each row exports the model (gigabytes in FOLDER, one at a time), measures the bytes of every layer by running it on one sample, and plans
the stages with recomputation and SGD with momentum, whose 12 bytes a weight are those of the paper's RMSprop. Nothing is trained.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUDGET = 8_000_000_000
GIB = 2**30
# (L, D, stages): parameters and GiB of activations on the fullest device that torchgpipe published (Kim et al. 2020, table 2), which
# repeats GPipe's table 1.
PUBLISHED = {(18, 416, 1): (319.0, 0.91), (18, 544, 2): (542.7, 3.39), (36, 544, 4): (1055.8, 6.91)}


def planned(layers, width, stages, folder):
    model, plan = folder / "model.pt2", folder / "plan.json"
    subprocess.run([sys.executable, ROOT / "examples/vision/export.py", "amoebanet", str(layers), str(width), "--out", model], check=True, stdout=subprocess.DEVNULL)
    fields = {"data.inputs": "none.npy", "data.targets": "none.npy", "data.validation_fraction": 0, "train.mini_batch": 128, "train.micro_batch": 1,
              "train.optimizer.kind": "sgd", "memory.recompute": "full", "memory.device": BUDGET, "mesh.pp": stages}
    words = [word for name, value in fields.items() for word in ("--set", f"{name}={value}")]
    done = subprocess.run([ROOT / "build/release/strata", "plan", "--model", model, "--estimate", "--json", plan, *words], capture_output=True, text=True, check=False)
    model.unlink()
    if done.returncode != 0:
        return None, done.stderr
    return json.loads(plan.read_text()), ""


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--rows", default="18x208x1,18x416x1,18x544x1,18x544x2,36x544x2")
    parser.add_argument("--folder", help="for one model at a time (default: a temporary one)")
    options = parser.parse_args()
    print("(L, D), stages       weights   of a rank: peak, weights + gradients + states, activations and the rest")
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        for row in options.rows.split(","):
            layers, width, stages = map(int, row.split("x"))
            plan, refusal = planned(layers, width, stages, pathlib.Path(folder))
            if plan is None:
                print(f"({layers}, {width}), {stages}: refused: " + " ".join(refusal.split()))
                continue
            weights = sum(rank["memory"]["bytes_at_peak"]["weights"] for rank in plan["ranks"]) / 4
            full = max(plan["ranks"], key=lambda rank: rank["memory"]["peak_bytes"])["memory"]
            model = sum(full["bytes_at_peak"].get(kind, 0) for kind in ("weights", "gradients", "states"))
            known = PUBLISHED.get((layers, width, stages))
            note = f"   published: {known[0]} M weights, activations {known[1]} GiB" if known else ""
            print(f"({layers}, {width}), {stages}   {weights / 1e6:8.1f} M   {full['peak_bytes'] / GIB:.2f} GiB = {model / GIB:.2f} + {(full['peak_bytes'] - model) / GIB:.2f}{note}", flush=True)


if __name__ == "__main__":
    main()
