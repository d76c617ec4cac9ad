"""Pipeline: trains an unchanged PyTorch model on a mesh of ranks, step by step."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import tempfile
import weakref
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import torch
from torch.utils.dlpack import from_dlpack, to_dlpack

from strata import _core
from strata.errors import StrataError, UserError
from strata.export import export_model
from strata.plan import Page, Plan
from strata.recipes import assignments

__all__ = ["Pipeline"]

_MOST_STEPS = 1_000_000_000
_LOSSES = ("cross_entropy", "cross_entropy_of_channels", "binary_cross_entropy", "squared_error")


class Pipeline:
    """Trains `model` on a pipeline, on replicas, or both; its layers may live on the host or a disk.

    ::

        pipe = strata.Pipeline(model, loss="cross_entropy", lr=1e-3, mesh={"pp": 2}, chunks=4)
        for x, y in loader:
            print(pipe.step(x, y)["loss"])
        model.load_state_dict(pipe.state_dict())

    The model is exported by torch.export and trained by Strata's ranks, which run Python for `python_layers` only. They are
    threads of this process, or belong to the processes that torchrun, Slurm or MPI started; each of these
    passes the same mini-batches. Losses and gradients have the bits of one rank for any number of stages,
    schedule, recomputation and place of the layers.

    Args:
        model: a module with one output. It is exported in training mode and
            keeps its own weights: state_dict() has the trained ones.
        loss: "cross_entropy" (classes last), "cross_entropy_of_channels" (classes in dimension 1),
            "binary_cross_entropy" (logits), "squared_error", or nn.CrossEntropyLoss(), nn.MSELoss(),
            nn.BCEWithLogitsLoss() with their defaults; label smoothing is taken over.
        optimizer: "adamw", "muon", "lamb", "onebit-adam", "zero-one-adam", "onebit-lamb", "sgd" or "adagrad", or a dictionary of the fields of train.optimizer. Unlike a
            recipe, weight_decay is 0 unless given.
        lr: the learning rate, constant unless step() has another.
        mesh: fields of `mesh`, as {"pp": 2, "dp": 2, "zero": 1}, or {"auto": True, "ranks": 4} for the fastest one.
        memory: fields of `memory`, as {"recompute": "full", "device": "2GiB"}.
        schedule: "gpipe", "1f1b", "interleaved", "zb-h1", "zbv" and others (docs/schedules.md); None: the planner's.
        chunks: micro-batches of a mini-batch, on each replica.
        clip: the largest gradient norm; 0 does not clip.
        layers: names of modules that become layers; None: chosen.
        python_layers: names of modules that run in Python. Those that torch.export refuses join them, with a warning, and
            those with an autograd.Function of their own, whose backward it would lose.
        seed: of dropout.
        example: a pair of inputs and targets of a full mini-batch, for .plan before the first step.
        resume: a checkpoint of save() to continue.
        overrides: other fields of a recipe by their paths, as {"train.steps": 1000, "train.decay": "cosine"}.
    """

    def __init__(self, model: torch.nn.Module, *, loss: str | torch.nn.Module = "cross_entropy", optimizer: str | Mapping = "adamw", lr: float = 1e-3,
                 mesh: Mapping | None = None, memory: Mapping | None = None, schedule: str | None = None, chunks: int = 1, clip: float = 0.0,
                 layers: Sequence[str] | None = None, python_layers: Sequence[str] = (), seed: int = 1, example: tuple | None = None, resume: str | os.PathLike = "",
                 overrides: Mapping | None = None):
        self._model = model
        self._recipe = _recipe(loss, optimizer, lr, mesh, memory, schedule, clip, layers, seed)
        self._chunks = int(chunks)
        self._python_layers = tuple(python_layers)
        if self._chunks < 1:
            raise UserError(f"chunks: expected 1 or more, got {chunks}")
        self._resume = os.fspath(resume)
        self._overrides = dict(overrides or {})
        self._session = None
        if example is not None:
            inputs, targets = example
            self._build(_tensors(inputs, targets))

    def step(self, inputs: torch.Tensor | tuple, targets: torch.Tensor, *, lr: float | None = None) -> dict | None:
        """Forward, backward and an update by one mini-batch.

        Args:
            inputs: a tensor, or a tuple of tensors for a model with several inputs; targets: a tensor.
            lr: the learning rate of this step.

        Returns a dictionary: loss (the mean over the mini-batch, before the update), gradient_norm,
        learning_rate, step_seconds, bubble, peak_bytes and more, in the process of rank 0; None elsewhere.
        """
        tensors = _tensors(inputs, targets)
        self._build(tensors)
        line = self._session.step([to_dlpack(tensor) for tensor in tensors], lr)
        return json.loads(line) if line else None

    def evaluate(self, inputs: torch.Tensor | tuple | Iterable, targets: torch.Tensor | None = None) -> dict:
        """Computes the loss without dropout and without learning, and the accuracy of a classifier.

        Args:
            inputs, targets: one mini-batch, as in step(); or, without targets, an iterable of pairs of them.

        Returns a dictionary: loss, and accuracy for cross-entropies.
        """
        batches = [(inputs, targets)] if targets is not None else list(inputs)
        tensors = [_tensors(*batch) for batch in batches]
        self._build(tensors[0])
        return self._session.evaluate([[to_dlpack(tensor) for tensor in batch] for batch in tensors])

    def state_dict(self) -> dict[str, torch.Tensor]:
        """The trained weights and running statistics, under the model's own names.

        What Strata does not train (frozen parameters, counters of batches) is the model's.
        """
        if self._resume:
            self._require_session("state_dict")
        state = {name: tensor.detach().clone() for name, tensor in self._model.state_dict().items()}
        if self._session is not None:
            trained = {name: from_dlpack(capsule) for name, capsule in self._session.weights().items()}
            for name, others in _same_storage(self._model).items():
                if name in trained:
                    for other in others:
                        trained.setdefault(other, trained[name])
            state.update({name: trained[name].view(tensor.shape).to(tensor.dtype) for name, tensor in state.items() if name in trained})
        return state

    def load_state_dict(self, state: Mapping[str, torch.Tensor]) -> None:
        """Replaces the weights by those of a state_dict() of the model."""
        session = self._require_session("load_state_dict")
        known, own = session.weights(), self._model.state_dict()
        missing = [name for name in known if name not in state]
        if missing:
            raise UserError(f"load_state_dict: the state has no weight {missing[0]!r}")
        tied = {other for name, others in _same_storage(self._model).items() if name in known for other in others}
        for name, tensor in state.items():
            if name not in own:
                raise UserError(f"load_state_dict: the model has no weight {name!r}")
            counts = name.endswith("num_batches_tracked")  # nothing reads it
            if name not in known and name not in tied and not counts and not torch.equal(tensor.cpu(), own[name].cpu()):
                raise UserError(f"load_state_dict: {name!r} is not trained, so it is fixed in the pipeline; change it in the model, and make another pipeline")
        session.load_weights({name: to_dlpack(state[name].detach().float().contiguous()) for name in known})

    def save(self, folder: str | os.PathLike) -> str:
        """Saves a checkpoint: safetensors under the model's names, the optimizer's states, the step. Returns its path."""
        return self._require_session("save").save(os.fspath(folder))

    def report(self, path: str | os.PathLike | None = None) -> Page:
        """The report of the steps so far: timelines, memory and losses on one page, which is also written to `path`.
        It is empty in other processes than that of rank 0."""
        page = Page(self._require_session("report").report())
        if path is not None and page.html:
            Path(path).write_text(page.html, encoding="utf-8")
        return page

    @property
    def plan(self) -> Plan:
        """The plan of the mesh: a table in a terminal, a page with pictures in a notebook."""
        return Plan(self._require_session("plan").plan())

    @property
    def recipe(self) -> str:
        """The effective recipe, as YAML."""
        return self._require_session("recipe").recipe

    @property
    def steps_done(self) -> int:
        return self._session.steps_done if self._session else 0

    def close(self) -> None:
        """Ends the ranks. The pipeline takes no more steps."""
        if self._session is not None:
            self._session.close()

    def __enter__(self) -> Pipeline:
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def _require_session(self, method):
        if self._session is None:
            raise UserError(f"Pipeline.{method}: the sizes of a mini-batch are unknown; pass example=(inputs, targets), or call step() first")
        return self._session

    def _build(self, tensors):
        """Exports the model and starts the ranks, by the sizes of the first mini-batch."""
        if self._session is not None:
            return
        samples = tensors[0].shape[0]
        folder = tempfile.mkdtemp(prefix="strata-")
        self._folder = weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        path = os.path.join(folder, type(self._model).__name__ + ".pt2")
        weakref.finalize(self, export_model(self._model, tensors[:-1], path, self._python_layers).close)
        recipe = self._recipe
        recipe["model"]["file"] = path
        recipe["train"]["mini_batch"] = samples
        recipe["train"]["micro_batch"] = -(-samples // (self._chunks * recipe["mesh"].get("dp", 1)))
        with torch.random.fork_rng(devices=[]):  # the planner measures layers with random values
            self._session = _core.Session(json.dumps(recipe), assignments(self._overrides), folder, _digest(self._model), self._resume)
        # The ranks end before the interpreter does.
        weakref.finalize(self, _end, self._session)


def _end(session):
    """Ends the ranks of a pipeline that is gone; its last call has raised what they threw."""
    with contextlib.suppress(StrataError):
        session.close()


def _recipe(loss, optimizer, lr, mesh, memory, schedule, clip, layers, seed):
    """The recipe of the arguments, without file and sizes."""
    name, smoothing = _loss_name(loss)
    fields = {"weight_decay": 0.0, **({"kind": optimizer} if isinstance(optimizer, str) else dict(optimizer))}
    fields.setdefault("learning_rate", lr)
    recipe = {
        "task": "graph",
        "model": {"loss": name},
        "data": {},
        "train": {"steps": _MOST_STEPS, "decay": "constant", "clip": clip, "seed": seed, "optimizer": fields},
        "mesh": dict(mesh or {}),
        "memory": dict(memory or {}),
    }
    if layers:
        recipe["model"]["layers"] = list(layers)
    if smoothing:
        recipe["train"]["label_smoothing"] = smoothing
    if schedule:
        recipe["mesh"]["schedule"] = schedule
    return recipe


def _loss_name(loss):
    """The name of a loss and its label smoothing; refuses a loss that computes something else."""
    if isinstance(loss, str):
        if loss not in _LOSSES:
            raise UserError(f"loss: expected one of {', '.join(_LOSSES)}, or a loss of torch.nn; got {loss!r}")
        return loss, 0.0
    nn = torch.nn
    if getattr(loss, "weight", None) is None and getattr(loss, "reduction", "mean") == "mean":
        if isinstance(loss, nn.CrossEntropyLoss) and loss.ignore_index == -100:
            return "cross_entropy", loss.label_smoothing
        if isinstance(loss, nn.BCEWithLogitsLoss) and loss.pos_weight is None:
            return "binary_cross_entropy", 0.0
        if isinstance(loss, nn.MSELoss):
            return "squared_error", 0.0
    raise UserError(f"loss: Strata computes the mean of {', '.join(_LOSSES)} without weights; got {loss}")


def _tensors(inputs, targets):
    """The tensors of a mini-batch on the host: inputs, then targets."""
    tensors = [*inputs, targets] if isinstance(inputs, (tuple, list)) else [inputs, targets]
    for tensor in tensors:
        if not isinstance(tensor, torch.Tensor):
            raise UserError(f"a mini-batch has tensors, not {type(tensor).__name__}")
        if tensor.dim() == 0:
            raise UserError("a tensor of a mini-batch begins with the samples; got a single number")
    return [tensor.detach().cpu().contiguous() for tensor in tensors]


def _digest(model):
    """Equal for equal weights: processes whose models differ would train neither of them."""
    digest = hashlib.blake2b()
    for name, tensor in model.state_dict().items():
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()[:16]


def _same_storage(model):
    """The names of each tensor of the model that has several, by each of them."""
    by_tensor = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        by_tensor.setdefault(id(tensor), []).append(name)
    return {name: names for names in by_tensor.values() if len(names) > 1 for name in names}
