"""What the program's verbs do for a recipe: plan(), train(), generate()."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from strata import _core
from strata.plan import Plan
from strata.progress import Progress

__all__ = ["plan", "train", "generate", "TrainingResult"]


def given(recipe, overrides):
    """What _core takes of a recipe: its YAML text, the name that errors give it, and the overrides as "field=value"."""
    if isinstance(recipe, Mapping):
        return json.dumps(dict(recipe)), "the recipe", assignments(overrides)
    path = os.fspath(recipe)
    return Path(path).read_text(encoding="utf-8"), path, assignments(overrides)


def assignments(overrides):
    """{"train.steps": 10} as ["train.steps=10"]."""
    return [f"{field}={value if isinstance(value, str) else json.dumps(value)}" for field, value in (overrides or {}).items()]


def plan(recipe: str | os.PathLike | Mapping, overrides: Mapping | None = None, *, measure: bool = True) -> Plan:
    """Plans a recipe on this machine.

    Args:
        recipe: the path of a YAML file, or a dictionary of its fields.
        overrides: fields by their paths, as {"train.steps": 10}.
        measure: False takes seconds from FLOPs and measures nothing.
    """
    return Plan(_core.plan(*given(recipe, overrides), measure))


class TrainingResult:
    """What a run measured.

    Attributes:
        steps: a dictionary for each step: loss, gradient_norm, learning_rate, step_seconds and the
            other keys of `strata train --metrics`.
        validation_loss: at the end; None without validation data.
        metrics: other numbers of that validation, such as accuracy or auc.
        checkpoint: the folder of the last checkpoint; "" if none was written.
        target_reached: whether a validation had the quality of train.target; None without one.
        stopped: whether the run was interrupted before its last step.
    """

    def __init__(self, steps, numbers):
        self.steps = steps
        self.validation_loss = numbers["validation_loss"]
        self.metrics = numbers["metrics"]
        self.checkpoint = numbers["checkpoint"]
        self.stopped = numbers["stopped"]
        self.target_reached = numbers["target_reached"]
        self.median_step_seconds = numbers["median_step_seconds"]
        self.bubble = numbers["bubble"]

    @property
    def losses(self) -> list[float]:
        return [step["loss"] for step in self.steps]

    def __repr__(self):
        last = f"loss {self.losses[-1]:.4f}, " if self.steps and self.losses[-1] is not None else ""
        validation = "" if self.validation_loss is None else f"validation loss {self.validation_loss:.4f}, "
        return f"TrainingResult({len(self.steps)} steps, {last}{validation}checkpoint {self.checkpoint!r})"


def train(recipe: str | os.PathLike | Mapping, overrides: Mapping | None = None, *, resume: str | os.PathLike = "", from_: str | os.PathLike = "",
          report: str | os.PathLike = "", on_step: Callable[[dict], object] | None = None, progress: bool = True) -> TrainingResult:
    """Trains a recipe in this process, or with the processes that torchrun or Slurm started.

    Args:
        recipe, overrides: as in plan().
        resume: a checkpoint, or the folder of several, to continue.
        from_: a checkpoint or Hugging Face folder with the first weights, and the model unless the recipe has one.
        report: a file for the HTML report.
        on_step: called after every step with its record, a dictionary.
        progress: shows a line.

    KeyboardInterrupt ends the run after the current step, saves a checkpoint if the recipe has a folder
    for it, and is raised then.
    """
    steps = []
    shown = Progress() if progress else None

    def receive(kind, text):
        if kind == "step":
            steps.append(json.loads(text))
            if on_step:
                on_step(steps[-1])
        elif shown and kind == "progress":
            shown.update(text)
        elif shown:
            shown.note(f"saved {text}" if kind == "checkpoint" else text)

    try:
        numbers = _core.train(*given(recipe, overrides), os.fspath(resume), os.fspath(from_), os.fspath(report), receive)
    finally:
        if shown:
            shown.close()
    return TrainingResult(steps, json.loads(numbers))


def generate(checkpoint: str | os.PathLike, prompt: str | Sequence[str] = "", *, tokens: int = 200, temperature: float = 0.8, seed: int = 1,
             overrides: Mapping | None = None, on_text: Callable[[int, str], object] | None = None) -> str | list[str]:
    """Continues a prompt, or each prompt of a list, with a text model.

    Args:
        checkpoint: a checkpoint, the folder of several, a Hugging Face folder or a GGUF file.
        tokens: how many to write, at most. temperature: 0 takes always the likeliest token.
        on_text: called with the index of a prompt and each piece of its text.

    Returns the text after the prompt; for a list of prompts a list.
    """
    prompts = [prompt] if isinstance(prompt, str) else list(prompt)
    def receive(index, piece):
        if on_text and piece:
            on_text(int(index), piece)

    texts = _core.generate(os.fspath(checkpoint), prompts, assignments(overrides), tokens, temperature, seed, receive)
    return texts[0] if isinstance(prompt, str) and texts else texts
