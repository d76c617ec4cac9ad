"""The operator by which an exported graph calls a module in Python.

Ranks run it like any other operator: the module computes on a copy for each thread, and autograd records what it does.
A call is known by its pipeline and its name in the graph.
"""

import copy
import hashlib
import threading

import torch
from torch._guards import detect_fake_mode
from torch.utils import _pytree as pytree

from strata import _core
from strata.errors import UserError
from strata.random_numbers import KeyedRandom

__all__ = ["PythonCall", "forget_call", "register_call"]

_TENSOR = object()  # the place of a tensor among the arguments
_registered = {}


def register_call(pipeline, name, call):
    call.pipeline, call.name = pipeline, name
    _registered[pipeline, name] = call


def forget_call(pipeline, name):
    _registered.pop((pipeline, name), None)


def _run(inputs, weights, name, pipeline):
    call = _registered.get((pipeline, name))
    if call is None:
        raise UserError(f"the layer {name!r} runs in Python: train its model by the strata.Pipeline that exported it")
    return call.meta(inputs) if detect_fake_mode((inputs, weights)) else call.run(inputs, weights)


_library = torch.library.Library("strata_python", "DEF")
_library.define("layer(Tensor[] inputs, Tensor[] weights, str name, int pipeline) -> Tensor[]")
_library.impl("layer", _run, "CompositeImplicitAutograd")


class PythonCall:
    """One call of a module: how its arguments and outputs are packed, and the sizes of its outputs.

    Args:
        path: of the module in the model.
    """

    def __init__(self, path, module):
        self.pipeline, self.name = 0, ""
        self._path, self._module = path, module
        self._records = []  # of mini-batches of two and three samples
        self._copies = {}  # by thread and mode

    def record(self, forward, args, kwargs):
        """Calls `forward` and learns what the call takes and returns."""
        arguments, spec = pytree.tree_flatten((args, kwargs))
        inputs = [each for each in arguments if isinstance(each, torch.Tensor)]
        if not inputs:
            raise self._error("takes no tensor")
        watched = {"its input": lambda: inputs, "its weights": lambda: list(self._module.parameters()),
                   "its buffers, as running statistics": lambda: list(self._module.buffers())}
        before = {what: _states(tensors()) for what, tensors in watched.items()}
        results, out_spec = pytree.tree_flatten(forward(*args, **kwargs))
        for what, tensors in watched.items():
            if before[what] != _states(tensors()):
                raise self._error(f"changes {what}; a layer runs on parts of the mini-batch, and more than once")
        for result in results:
            if not isinstance(result, torch.Tensor):
                raise self._error(f"returns {type(result).__name__}; a layer returns tensors")
        self._records.append({"packed": (spec, out_spec, [_TENSOR if isinstance(each, torch.Tensor) else each for each in arguments]),
                              "inputs": [tuple(tensor.shape) for tensor in inputs],
                              "outputs": [(tuple(tensor.shape), tensor.dtype) for tensor in results]})
        return pytree.tree_unflatten(results, out_spec)

    def compare_records(self):
        """Finds what depends on the number of samples, and how."""
        if len(self._records) != 2 or self._records[0]["packed"] != self._records[1]["packed"]:
            raise self._error("is called in a way that depends on the number of samples")
        two, three = self._records
        self._spec, self._out_spec, self._arguments = two["packed"]
        self._samples = next(((index, dimension, b - a, 3 * a - 2 * b) for index, sizes in enumerate(zip(two["inputs"], three["inputs"]))
                              for dimension, (a, b) in enumerate(zip(*sizes)) if a != b), None)
        # A size is per * samples + fixed.
        self._outputs = [([(b - a, 3 * a - 2 * b) for a, b in zip(small, large)], dtype)
                         for (small, dtype), (large, _) in zip(two["outputs"], three["outputs"])]

    def call_operator(self, args, kwargs):
        """Instead of the module, while the model is exported."""
        arguments, spec = pytree.tree_flatten((args, kwargs))
        packed = [_TENSOR if isinstance(each, torch.Tensor) else each for each in arguments]
        if (spec, packed) != (self._spec, self._arguments):
            raise self._error("is called with other arguments by torch.export")
        inputs = [each for each in arguments if isinstance(each, torch.Tensor)]
        weights = [owner[name] for owner, name in _places(self._module)]
        return pytree.tree_unflatten(torch.ops.strata_python.layer(inputs, weights, self.name, self.pipeline), self._out_spec)

    def meta(self, inputs):
        """Outputs of the right sizes, without computing."""
        samples = 0
        if self._samples is not None:
            index, dimension, per, fixed = self._samples
            samples = (inputs[index].shape[dimension] - fixed) // per
        return [inputs[0].new_empty([per * samples + fixed if per else fixed for per, fixed in sizes], dtype=dtype)
                for sizes, dtype in self._outputs]

    def run(self, inputs, weights):
        training, seed, step, first_sample = _core.running_layer()
        module, places = self._copy(training)
        tensors = iter(inputs)
        args, kwargs = pytree.tree_unflatten([next(tensors) if each is _TENSOR else each for each in self._arguments], self._spec)
        random = KeyedRandom(lambda: _hash(seed, step, first_sample, self.name), 0)
        metas = [owner[name] for owner, name in places]
        try:
            for (owner, name), weight in zip(places, weights):
                owner[name] = weight
            with random:
                outputs = module(*args, **kwargs)
        finally:  # the layer frees its weights
            for (owner, name), meta in zip(places, metas):
                owner[name] = meta
        return pytree.tree_flatten(outputs)[0]

    def _copy(self, training):
        """The module of this thread without weights, and where they go."""
        key = (threading.get_ident(), training)
        if key not in self._copies:
            metas = {id(tensor): torch.empty_like(tensor, device="meta").requires_grad_(tensor.requires_grad)
                     for tensor in (*self._module.parameters(), *self._module.buffers())}
            for parameter in self._module.parameters():
                metas[id(parameter)] = torch.nn.Parameter(metas[id(parameter)], parameter.requires_grad)
            module = copy.deepcopy(self._module, metas).train(training)
            self._copies[key] = (module, _places(module))
        return self._copies[key]

    def _error(self, what):
        return UserError(f"a layer in Python: {self._path!r} {what}")


def _states(tensors):
    return [(id(tensor), tensor._version) for tensor in tensors]


def _hash(*parts):
    return int.from_bytes(hashlib.blake2b(repr(parts).encode(), digest_size=7).digest(), "little")


def _places(module):
    """Where the module's parameters and buffers are, as dictionaries and names; one that is used twice counts twice."""
    return [(tensors, name) for owner in module.modules() for tensors in (owner._parameters, owner._buffers)
            for name, tensor in tensors.items() if tensor is not None]
