"""Cells: a partition's work on one micro-batch, forward and backward, as an autograd graph of its own.

The graph begins at leaves, which are the detached inputs, and ends at the outputs; the backward of one cell
continues in that of the partition before. A checkpointed cell keeps its inputs only, and runs its forward
again before its backward.
"""

import threading
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

import torch

from strata.gpipe import micro_batches
from strata.random_numbers import KeyedRandom
from strata.gpipe.skip.tracker import SkipTracker, use_skip_tracker

__all__ = ["AutocastState", "Batch", "Cell", "Partition", "Value", "is_checkpointing", "is_recomputing", "running_chunks"]

_thread = threading.local()


def is_checkpointing():
    """Whether this thread runs a forward that will be run again before its backward."""
    return getattr(_thread, "checkpointing", False)


def is_recomputing():
    """Whether this thread runs a forward for the second time."""
    return getattr(_thread, "recomputing", False)


def running_chunks():
    """The number of micro-batches of the mini-batch that this thread works on; None outside of a GPipe."""
    return getattr(_thread, "chunks", None)


@contextmanager
def _running(chunks, *, checkpointing=False, recomputing=False):
    before = dict(_thread.__dict__)
    _thread.chunks, _thread.checkpointing, _thread.recomputing = chunks, checkpointing, recomputing
    try:
        yield
    finally:
        _thread.__dict__.clear()
        _thread.__dict__.update(before)


class Partition(torch.nn.Sequential):
    """Consecutive layers of one device. `first`: the index of its first layer in the whole sequence."""

    def __init__(self, layers, first):
        super().__init__(layers)
        self.first = first

    def forward(self, value):
        random = getattr(_thread, "random", None)
        for index, layer in enumerate(self):
            if random is not None:
                random.begin_layer(self.first + index)
            value = layer(value)
        return value


class Value(NamedTuple):
    """What one cell hands to another: a tensor without a graph, or None for a skip of nothing."""

    tensor: object
    wants_gradient: bool


class Batch(NamedTuple):
    """What a partition returns for a micro-batch."""

    values: list
    is_tuple: bool


class _Inside(torch.autograd.Function):
    """The value itself, no longer a leaf: layers may change it in place."""

    @staticmethod
    def forward(ctx, value):
        return value.detach()

    @staticmethod
    def backward(ctx, gradient):
        return gradient


class _Graph(NamedTuple):
    leaves: list
    popped: dict
    outputs: tuple
    is_tuple: bool
    stashed: dict


class Cell:
    """One partition and one micro-batch.

    Args:
        partition: a Partition. index: that of the micro-batch, of `chunks`.
        seed: a function that returns the step's seed. autocast: AutocastState of the step.
        needs_backward, checkpoints: whether a backward follows, and recomputes the forward.
    """

    def __init__(self, partition, index, chunks, seed, autocast, needs_backward, checkpoints):
        self._partition = partition
        self._index = index
        self._chunks = chunks
        self._seed = seed
        self._autocast = autocast
        self._needs_backward = needs_backward
        self._checkpoints = needs_backward and checkpoints
        self._kept = None  # until the backward: a graph, or what a recomputation starts from

    def forward(self, batch, skips):
        """Runs the partition.

        Args:
            batch: the Batch of the partition before. skips: Values by key that this partition pops and another
                one stashed.

        Returns its Batch, and the Values that it stashed for others, by key.
        """
        with torch.set_grad_enabled(self._needs_backward and not self._checkpoints), _running(self._chunks, checkpointing=self._checkpoints):
            versions = _versions(batch, skips)
            graph = self._run(batch, skips)
            if self._checkpoints and _versions(batch, skips) != versions:
                raise RuntimeError("a layer has changed the input of its partition in place, so a recomputation would start from other "
                                   "values: use inplace=False there, or checkpoint='never'")
        if self._needs_backward:
            self._kept = (batch, skips) if self._checkpoints else graph
        return Batch([self._value(t) for t in graph.outputs], graph.is_tuple), {key: self._value(t) for key, t in graph.stashed.items()}

    def backward(self, gradients, skip_gradients):
        """Adds the gradients of the partition's parameters, and ends the graph.

        Args:
            gradients: of the outputs, None where there is none. skip_gradients: of stashed values, by key.

        Returns the gradients of the inputs, and of the popped values by key.
        """
        kept, self._kept = self._kept, None
        if self._checkpoints:
            with torch.enable_grad(), _running(self._chunks, recomputing=True):
                kept = self._run(*kept)
        pairs = [*zip(kept.outputs, gradients), *((tensor, skip_gradients.get(key)) for key, tensor in kept.stashed.items())]
        pairs = [(tensor, gradient) for tensor, gradient in pairs if gradient is not None and tensor is not None and tensor.requires_grad]
        if pairs:
            torch.autograd.backward(*zip(*pairs))
        return [leaf.grad for leaf in kept.leaves], {key: None if leaf is None else leaf.grad for key, leaf in kept.popped.items()}

    def _run(self, batch, skips):
        leaves = [_leaf(value) for value in batch.values]
        popped = {key: _leaf(value) for key, value in skips.items()}
        tracker = SkipTracker({key: _inside(leaf) for key, leaf in popped.items()})
        value = micro_batches.like(batch.is_tuple, [_inside(leaf) for leaf in leaves])
        with use_skip_tracker(tracker), self._random(), self._autocast.again():
            value = self._partition(value)
        micro_batches.check(value)
        return _Graph(leaves, popped, micro_batches.as_tuple(value), isinstance(value, tuple), tracker.tensors)

    @contextmanager
    def _random(self):
        """Draws by key while the partition trains."""
        if not self._partition.training:
            yield
            return
        _thread.random = KeyedRandom(self._seed, self._index)
        try:
            with _thread.random:
                yield
        finally:
            _thread.random = None

    def _value(self, tensor):
        if tensor is None:
            return Value(None, False)
        # A checkpointed forward has no graph to tell.
        return Value(tensor.detach(), tensor.requires_grad or (self._checkpoints and (tensor.is_floating_point() or tensor.is_complex())))


def _versions(batch, skips):
    """How often the values without a gradient were changed; PyTorch refuses to change the others in the recomputation."""
    return [value.tensor._version for value in [*batch.values, *skips.values()] if value.tensor is not None and not value.wants_gradient]


class AutocastState:
    """The autocast of the thread that makes this, for other threads."""

    def __init__(self):
        self._modes = [(kind, torch.get_autocast_dtype(kind)) for kind in ("cpu", "cuda") if torch.is_autocast_enabled(kind)]
        self._caches = torch.is_autocast_cache_enabled()

    @contextmanager
    def again(self):
        with ExitStack() as stack:
            for kind, dtype in self._modes:
                stack.enter_context(torch.autocast(kind, dtype=dtype, cache_enabled=self._caches))
            yield


def _leaf(value):
    if value.tensor is None:
        return None
    return value.tensor.detach().requires_grad_(value.wants_gradient and torch.is_grad_enabled())


def _inside(leaf):
    # A recomputation would start from what a layer has changed in place, so PyTorch shall refuse that, as for
    # every leaf.
    if leaf is None or not leaf.requires_grad or is_recomputing():
        return leaf
    return _Inside.apply(leaf)
