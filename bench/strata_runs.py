"""Runs Strata for a bench that compares Strata's own settings, reads what it writes, and saves the figures."""

import json
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from resident import ROOT

STRATA = ROOT / "build/release/strata"


def call(*arguments):
    """Standard output; ends the bench if the program fails."""
    done = subprocess.run([str(STRATA), *arguments], cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"strata {' '.join(arguments)}\n{done.stderr}")
    return done.stdout


def settings(fields):
    """Options for fields of a recipe; `mesh__cp` is mesh.cp."""
    return [word for path, value in fields.items() for word in ("--set", f"{path.replace('__', '.')}={value}")]


def train(recipe, fields, processes=1):
    """The metrics of every step."""
    with tempfile.TemporaryDirectory() as folder:
        metrics = Path(folder) / "m.jsonl"
        launch = ("launch", "-n", str(processes), "--") if processes > 1 else ()
        call(*launch, "train", str(recipe), "--metrics", str(metrics), *settings(fields))
        return [json.loads(line) for line in metrics.read_text().splitlines()]


def plan(recipe, fields):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "plan.json"
        call("plan", str(recipe), "--json", str(path), *settings(fields))
        return json.loads(path.read_text())


def require_program():
    if not STRATA.exists():
        sys.exit(f"run: no {STRATA.relative_to(ROOT)}; run `make build` first")


def save(folder, result):
    """Writes the figures to folder/results, with machine and date."""
    result = {"machine": platform.processor() or platform.machine(), "date": time.strftime("%d %B %Y"), **result}
    path = folder / "results" / time.strftime("%Y-%m-%d-%H%M%S.json")
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(result, indent=1))
    print(f"\n{path.relative_to(ROOT)}")
