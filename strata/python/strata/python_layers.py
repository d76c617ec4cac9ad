"""Finds the modules of a model that have to run in Python, and puts calls of an operator in their place."""

import difflib
import itertools
from contextlib import contextmanager

import torch

from strata.errors import UserError
from strata.python_call import PythonCall, forget_call, register_call

__all__ = ["NeedsPython", "PythonLayers", "watched"]

_numbers = itertools.count()


class PythonLayers:
    """The modules of a model that run in Python, until close().

    Args:
        names: paths of the modules. inputs: tensors of a mini-batch. The model runs twice, on two and on three samples and
            without gradients, to learn the sizes of the modules' outputs.
    """

    def __init__(self, model, names, inputs):
        self._modules = _outermost(model, names)
        self._calls = {path: [] for path in self._modules}
        self._keys = []
        if not self._modules:
            return
        for count in (2, 3):
            self._record(model, [tensor[torch.arange(count) % tensor.shape[0]] for tensor in inputs])
        number = next(_numbers)  # equal in processes that make the same pipelines
        for path, calls in self._calls.items():
            if not calls:
                raise UserError(f"python_layers: the model does not call {path!r}")
            for index, call in enumerate(calls):
                call.compare_records()
                call.name = f"{path}#{index}"
                self._keys.append(f"{call.name} of pipeline {number}")
                register_call(self._keys[-1], call)

    def close(self):
        for key in self._keys:
            forget_call(key)

    @contextmanager
    def replaced(self):
        """The modules call the operator."""
        def stub(path):
            calls = itertools.cycle(self._calls[path])
            return lambda *args, **kwargs: next(calls).call_operator(args, kwargs)

        with _forwards(self._modules, stub):
            yield

    def _record(self, model, inputs):
        def recorder(path):
            module, calls, places = self._modules[path], self._calls[path], itertools.count()
            forward = module.forward

            def record(*args, **kwargs):
                place = next(places)
                if place == len(calls):
                    calls.append(PythonCall(path, module))
                return calls[place].record(forward, args, kwargs)

            return record

        statistics = {name: buffer.clone() for name, buffer in model.named_buffers()}
        with torch.no_grad(), torch.random.fork_rng(devices=[]), _forwards(self._modules, recorder):
            model(*inputs)
            for name, buffer in model.named_buffers():
                buffer.copy_(statistics[name])


class NeedsPython(Exception):  # noqa: N818
    """torch.export would keep the forward of an autograd.Function and lose its backward."""


class _Watch:
    """The modules whose forward runs, outermost first."""

    def __init__(self):
        self.path = []

    def leave(self, *_):  # what a hook returns would become the module's output
        self.path.pop()

    @property
    def innermost(self):
        return self.path[-1] if self.path else ""


@contextmanager
def watched(model):
    """Yields what says, after an error, in which module it was. Raises NeedsPython where a user's autograd.Function runs."""
    watch, handles = _Watch(), []
    apply = torch.autograd.Function.__dict__["apply"]

    def refuse(function, *args, **kwargs):
        if function.__module__.partition(".")[0] == "torch":
            return apply.__func__(function, *args, **kwargs)
        raise NeedsPython(f"torch.export keeps no backward of {function.__name__}")

    for name, module in model.named_modules():
        handles.append(module.register_forward_pre_hook(lambda *_, name=name: watch.path.append(name)))
        handles.append(module.register_forward_hook(watch.leave))
    torch.autograd.Function.apply = classmethod(refuse)
    try:
        yield watch
    finally:
        torch.autograd.Function.apply = apply
        for handle in handles:
            handle.remove()


@contextmanager
def _forwards(modules, make):
    """Replaces forward() of modules by make(path)."""
    forwards = {path: make(path) for path in modules}
    before = {path: module.__dict__.get("forward") for path, module in modules.items()}
    try:
        for path, module in modules.items():
            module.forward = forwards[path]
        yield
    finally:
        for path, module in modules.items():
            if before[path] is None:
                module.__dict__.pop("forward", None)
            else:
                module.forward = before[path]


def _outermost(model, names):
    """The modules of these names, without those inside another."""
    modules = dict(model.named_modules())
    for name in names:
        if name not in modules or not name:
            nearest = difflib.get_close_matches(name, modules, 1)
            raise UserError(f"python_layers: the model has no module {name!r}" + (f"; did you mean {nearest[0]!r}?" if nearest else ""))
    return {name: modules[name] for name in names if not any(name.startswith(other + ".") for other in names)}
