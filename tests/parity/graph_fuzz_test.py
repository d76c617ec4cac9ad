"""Trains a step of exported models whose graphs were changed at random: each runs, or ends in one error, never in a crash.

    graph_fuzz_test.py             2,000 files
    GRAPH_FUZZ=SEED,COUNT          others
"""

import io
import json
import os
import random
import subprocess
import unittest
import zipfile

import graph_case
from graph_case import torch

SEED, COUNT = (int(number) for number in os.environ.get("GRAPH_FUZZ", "1,2000").split(","))
ODD_VALUES = [0, -1, 1, 2**31, 2**62, -2**63, 1e300, None, True, "", "x", [], {}]


def paths_of(value, path=()):
    """Where the numbers and texts of a JSON document are."""
    if isinstance(value, (dict, list)):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield from paths_of(value[key], (*path, key))
    else:
        yield path


def value_at(document, path):
    for key in path:
        document = document[key]
    return document


def change(document, dice):
    """Changes a value, or removes or repeats a part."""
    paths = list(paths_of(document))
    path = dice.choice(paths)
    parent, key = value_at(document, path[:-1]), path[-1]
    old, kind = parent[key], dice.randrange(6)
    around, place = (value_at(document, path[:-2]), path[-2]) if len(path) > 1 else (parent, key)
    if kind == 0:
        parent[key] = dice.choice(ODD_VALUES)
    elif kind == 1:
        parent[key] = value_at(document, dice.choice(paths))
    elif kind == 2 and isinstance(old, str) and old:
        at = dice.randrange(len(old))
        parent[key] = old[:at] + chr(dice.randint(32, 126)) + old[at + 1:]
    elif kind == 3 and isinstance(old, (int, float)):
        parent[key] = old + dice.choice([-1, 1, 2, 1000, 10**9])
    elif kind == 4:
        around.pop(place)
    elif isinstance(around, list):
        around.insert(dice.randrange(len(around) + 1), dice.choice(around))
    else:
        parent[key] = -7


def changed_archive(archive, dice):
    """The same files, one of whose JSON documents is changed in up to three places."""
    source, out = zipfile.ZipFile(io.BytesIO(archive)), io.BytesIO()
    chosen = dice.choice(["models/model.json"] * 4 + ["weights_config.json"])
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as target:
        for name in source.namelist():
            record = source.read(name)
            if name.endswith(chosen):
                document = json.loads(record)
                for _ in range(dice.randint(1, 3)):
                    change(document, dice)
                record = json.dumps(document).encode()
            target.writestr(name, record)
    return out.getvalue()


class GraphFuzz(graph_case.GraphTest):
    def test_changed_graphs_run_or_are_refused(self):
        dice, models = random.Random(SEED), []
        ids = torch.randint(0, 40, (4, 17))
        images = torch.rand(4, 3, 16, 16)
        for model, x, targets in (
                (graph_case.perceptron(0.1), torch.randn(16, 12), torch.randint(0, 5, (16,))),
                (graph_case.Language(), ids[:, :-1], ids[:, 1:]), (graph_case.llama(), ids[:, :-1], ids[:, 1:]),
                (graph_case.UNet(), images, torch.rand(4, 3, 16, 16))):
            self.export(model.train(), x)
            models.append(((self.folder / "model.pt2").read_bytes(), x, targets))
        ran = refused = 0
        for number in range(COUNT):
            archive, x, targets = dice.choice(models)
            changed = changed_archive(archive, dice)
            (self.folder / "model.pt2").write_bytes(changed)
            self.write(x, targets)
            run = {"loss": "cross_entropy" if targets.dtype == torch.int64 else "squared_error", "inputs": [self.spec(x)],
                   "targets": self.spec(targets), "samples": len(x), "valid": targets.numel(), "micro_batch": len(x),
                   "steps": 1, "learning_rate": 0.05, "own": dice.random() < 0.5}
            (self.folder / "run.json").write_text(json.dumps(run))
            done = subprocess.run([os.environ["PARITY_GRAPH"], str(self.folder)], capture_output=True, check=False, timeout=120)
            self.assertIn(done.returncode, (0, 1), f"file {number} of seed {SEED}: {done.stderr.decode(errors='replace')[-800:]}")
            ran, refused = ran + (done.returncode == 0), refused + (done.returncode == 1)
        print(f"{COUNT} changed models: {ran} ran, {refused} were refused")
        self.assertGreater(ran, 0)
        self.assertGreater(refused, 0)


if __name__ == "__main__":
    unittest.main()
