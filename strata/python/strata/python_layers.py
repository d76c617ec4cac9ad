"""Finds the modules of a model that have to run in Python, and puts calls of an operator in their place."""

import difflib
import itertools
import threading
from contextlib import contextmanager

import torch
import torch.utils.checkpoint

from strata.errors import UserError
from strata.python_call import PythonCall, forget_call, register_call

__all__ = ["NeedsPython", "PythonLayers", "watched"]

_pipelines = itertools.count()


class PythonLayers:
    """The modules of a model that run in Python, until close().

    Args:
        names: paths of the modules. inputs: tensors of a mini-batch. The model runs twice, on two and on three samples and
            without gradients, to learn the sizes of the modules' outputs.
    """

    def __init__(self, model, names, inputs):
        self._modules = _outermost(model, names)
        for path, module in self._modules.items():
            if any("forward" in each.__dict__ for each in module.modules()):
                raise UserError(f"python_layers: {path!r} has a forward() of its own object, which a copy of the module would not have")
        self._calls = {path: [] for path in self._modules}
        self._keys = []
        if not self._modules:
            return
        for count in (2, 3):
            self._record(model, [tensor[torch.arange(count) % tensor.shape[0]] for tensor in inputs])
        pipeline = next(_pipelines)  # equal in processes that make the same pipelines
        for path, calls in self._calls.items():
            if not calls:
                raise UserError(f"python_layers: the model does not call {path!r}")
            for index, call in enumerate(calls):
                call.compare_records()
                self._keys.append((pipeline, f"{path}#{index} {type(self._modules[path]).__name__}"))
                register_call(*self._keys[-1], call)

    def close(self):
        for key in self._keys:
            forget_call(*key)

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

            def record(*args, **kwargs):
                place = next(places)
                if place == len(calls):
                    calls.append(PythonCall(path, module))
                with _as_before(module):
                    return calls[place].record(module, args, kwargs)

            return record

        buffers = [(owner._buffers, name, buffer, buffer.clone()) for owner in model.modules() for name, buffer in owner._buffers.items() if buffer is not None]
        with torch.no_grad(), torch.random.fork_rng(devices=[]), _forwards(self._modules, recorder):
            try:
                model(*inputs)
            finally:
                for owner, name, buffer, values in buffers:
                    buffer.copy_(values)
                    owner[name] = buffer


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
    watch, handles, thread = _Watch(), [], threading.get_ident()
    # What Function.apply calls, also one that was bound to a name before.
    base = torch.autograd.function._SingleLevelFunction

    def apply(function, *args, **kwargs):
        if threading.get_ident() == thread:
            if function is torch.utils.checkpoint.CheckpointFunction:  # the pipeline recomputes layers itself
                run, _, *inputs = args
                return run(*inputs)
            if function.__module__.partition(".")[0] != "torch":
                raise NeedsPython(f"torch.export keeps no backward of {function.__name__}")
        return super(base, function).apply(*args, **kwargs)

    for name, module in model.named_modules():
        handles.append(module.register_forward_pre_hook(lambda *_, name=name: watch.path.append(name)))
        handles.append(module.register_forward_hook(watch.leave))
    base.apply = classmethod(apply)
    try:
        yield watch
    finally:
        del base.apply
        for handle in handles:
            handle.remove()


_HOOKS = ("_forward_pre_hooks", "_forward_pre_hooks_with_kwargs", "_forward_hooks", "_forward_hooks_with_kwargs", "_forward_hooks_always_called",
          "_backward_hooks", "_backward_pre_hooks")


@contextmanager
def _forwards(modules, make):
    """Replaces forward() of modules by make(path). Their hooks belong to what is replaced."""
    forwards = {path: make(path) for path in modules}
    hooks = {path: {name: module.__dict__[name] for name in _HOOKS} for path, module in modules.items()}
    try:
        for path, module in modules.items():
            module._strata_hooks = hooks[path]
            module.__dict__.update({name: type(own)() for name, own in hooks[path].items()})
            module.forward = forwards[path]
        yield
    finally:
        for path, module in modules.items():
            module.__dict__.pop("forward", None)
            module.__dict__.pop("_strata_hooks", None)
            module.__dict__.update(hooks[path])


@contextmanager
def _as_before(module):
    """The module inside of _forwards(), as it is outside."""
    replaced = {name: module.__dict__[name] for name in (*_HOOKS, "forward", "_strata_hooks")}
    try:
        module.__dict__.update(module._strata_hooks)
        del module.__dict__["forward"], module.__dict__["_strata_hooks"]
        yield
    finally:
        module.__dict__.update(replaced)


def _outermost(model, names):
    """The modules of these names, without those inside another."""
    modules = dict(model.named_modules())
    for name in names:
        if name not in modules or not name:
            nearest = difflib.get_close_matches(name, modules, 1)
            raise UserError(f"python_layers: the model has no module {name!r}" + (f"; did you mean {nearest[0]!r}?" if nearest else ""))
    return {name: modules[name] for name in names if not any(name.startswith(other + ".") for other in names)}
