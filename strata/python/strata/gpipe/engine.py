"""The engine: runs the cells of a step in one thread for each partition, in the order of the schedule.

The forward pass runs the F's of each partition's program, the backward pass its B's; loss and optimizer are
between them, outside. One autograd node stands for all partitions in the user's graph.
"""

import queue
import threading
import weakref

import torch

from strata import _core
from strata.gpipe import micro_batches
from strata.gpipe.cells import AutocastState, Batch, Cell, Value

__all__ = ["Engine"]


class _Stopped(Exception):  # noqa: N818
    """Another partition has failed."""


class _Workers:
    """A thread for each partition, as long as this object lives."""

    def __init__(self, count):
        self._tasks = [queue.SimpleQueue() for _ in range(count)]
        self._lock = threading.Lock()
        for tasks in self._tasks:
            threading.Thread(target=self._work, args=(tasks,), name="strata.GPipe", daemon=True).start()
        weakref.finalize(self, self._end, self._tasks)

    @staticmethod
    def _work(tasks):
        while (task := tasks.get()) is not None:
            task()
            del task  # it holds the step's tensors

    @staticmethod
    def _end(all_tasks):
        for tasks in all_tasks:
            tasks.put(None)

    def run(self, works):
        """Runs works[i] in thread i; throws the first error after all have ended."""
        errors, ended = [], queue.SimpleQueue()

        def task(work):
            try:
                work()
            except _Stopped:
                pass
            except BaseException as error:  # noqa: BLE001: the caller gets it
                errors.append(error)
            finally:
                ended.put(None)

        with self._lock:  # two steps at once do not wait for each other's threads
            for tasks, work in zip(self._tasks, works):
                tasks.put(lambda work=work: task(work))
        for _ in works:
            ended.get()
        if errors:
            raise errors[0]


class _Passage:
    """Batches or gradients from one partition to the next, in the order of micro-batches."""

    def __init__(self):
        self._items = queue.SimpleQueue()

    def put(self, item):
        self._items.put(item)

    def get(self):
        item = self._items.get()
        if item is _Stopped:
            raise _Stopped
        return item


class Engine:
    """Runs partitions.

    Args:
        partitions, devices: of the same length. skips: skip_stages() of the partitions.
    """

    def __init__(self, partitions, devices, skips):
        self._partitions = partitions
        self._devices = devices
        self._skips = skips
        self._workers = _Workers(len(partitions))

    def run(self, inputs, chunks, checkpoint_stop):
        """Runs the mini-batch `inputs`, a tensor or a tuple, in `chunks` micro-batches; recomputes those before
        `checkpoint_stop` in their backward. Returns what the last partition returns."""
        tensors = micro_batches.as_tuple(inputs)
        sizes = [tensor.shape[0] if tensor.dim() else None for tensor in tensors]
        if None in sizes or len(set(sizes)) != 1:
            raise ValueError(f"the first dimension of every input is the samples of the mini-batch; got {[tuple(t.shape) for t in tensors]}")
        needs_backward = torch.is_grad_enabled() and (
            any(tensor.requires_grad for tensor in tensors) or any(p.requires_grad for partition in self._partitions for p in partition.parameters()))
        parts = micro_batches.scatter([tensor.detach() for tensor in tensors], chunks)
        step = _Step(self, parts, isinstance(inputs, tuple), needs_backward, checkpoint_stop)
        if not needs_backward:
            outputs = step.forward([False] * len(tensors))
        else:
            # The engine of autograd skips a node without an input that wants a gradient.
            trigger = torch.empty(0, requires_grad=True)
            outputs = _Node.apply(step, trigger, *tensors)
        return micro_batches.like(step.returns_tuple, outputs)


class _Node(torch.autograd.Function):
    """All partitions, in the user's graph. Their parameters' gradients are added where they are, as a
    checkpointed module of PyTorch adds them: torch.autograd.grad() of a parameter finds none."""

    @staticmethod
    def forward(ctx, step, trigger, *tensors):
        ctx.step = step
        ctx.set_materialize_grads(False)
        outputs = step.forward(ctx.needs_input_grad[2:])
        ctx.mark_non_differentiable(*(tensor for tensor, wants in zip(outputs, step.wants_gradients) if not wants))
        return tuple(outputs)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, *gradients):
        step, ctx.step = ctx.step, None
        if step is None:
            raise RuntimeError("a GPipe's graph was used already: it keeps no tensors for a second backward")
        return None, None, *step.backward(gradients)


class _Step:
    """The cells of one mini-batch, from its forward to its backward."""

    def __init__(self, engine, parts, is_tuple, needs_backward, checkpoint_stop):
        self._engine = engine
        self._parts, self._is_tuple = parts, is_tuple  # the inputs by micro-batch, until the forward
        self._chunks = chunks = len(parts)
        self._programs = _core.gpipe_programs(len(engine._partitions), chunks)
        self._seed_lock, self._seed_drawn = threading.Lock(), None
        autocast = AutocastState()
        self._cells = [[Cell(partition, i, chunks, self._seed, autocast, needs_backward, i < checkpoint_stop) for i in range(chunks)]
                       for partition in engine._partitions]
        self._stop = threading.Event()
        self._sizes = []  # of each micro-batch of each output
        self.returns_tuple = False
        self.wants_gradients = []

    def forward(self, wants):
        """The outputs of the mini-batch; `wants`: which inputs want a gradient."""
        batches = [Batch([Value(tensor, want) for tensor, want in zip(tensors, wants)], self._is_tuple) for tensors in self._parts]
        self._parts = None
        last = self._pass("F", batches, self._forward_cell)
        self.returns_tuple = last[0].is_tuple
        self._sizes = [[value.tensor.shape[0] if value.tensor.dim() else 0 for value in batch.values] for batch in last]
        columns = list(zip(*(batch.values for batch in last)))
        self.wants_gradients = [any(value.wants_gradient for value in column) for column in columns]
        return micro_batches.gather([[value.tensor for value in batch.values] for batch in last])

    def backward(self, gradients):
        """The gradients of the inputs."""
        parts = [[None] * self._chunks if gradient is None else [gradient] if self._chunks == 1 else gradient.split([sizes[k] for sizes in self._sizes])
                 for k, gradient in enumerate(gradients)]
        first = self._pass("B", [list(batch) for batch in zip(*parts)], self._backward_cell)
        return [None if any(part is None for part in column) else micro_batches.gather([[part] for part in column])[0] for column in zip(*first)]

    def _pass(self, kind, items, cell):
        """Runs the actions of one kind. `items`: what enters, by micro-batch. Returns what leaves."""
        count = len(self._cells)
        passages = [_Passage() for _ in range(count + 1)]
        order = range(count) if kind == "F" else range(count - 1, -1, -1)
        skips = {}
        for item in items:
            passages[0].put(item)

        def work(position, partition):
            try:
                for action, micro_batch in self._programs[partition]:
                    if action != kind:
                        continue
                    item = passages[position].get()
                    if self._stop.is_set():
                        raise _Stopped
                    passages[position + 1].put(cell(partition, micro_batch, item, skips))
            except BaseException:
                self._stop.set()
                for passage in passages:
                    passage.put(_Stopped)
                raise

        works = [None] * count
        for position, partition in enumerate(order):
            works[partition] = lambda position=position, partition=partition: work(position, partition)
        self._engine._workers.run(works)
        return [passages[count].get() for _ in items]

    def _forward_cell(self, partition, micro_batch, batch, skips):
        device = self._engine._devices[partition]
        arrived = {key: _moved(skips.pop((key, micro_batch)), device) for key, (_, popper) in self._engine._skips.items() if popper == partition}
        output, stashed = self._cells[partition][micro_batch].forward(Batch([_moved(v, device) for v in batch.values], batch.is_tuple), arrived)
        skips.update({(key, micro_batch): value for key, value in stashed.items()})
        return output

    def _backward_cell(self, partition, micro_batch, gradients, skips):
        stashed = {key: skips.pop((key, micro_batch), None) for key, (stasher, _) in self._engine._skips.items() if stasher == partition}
        device = self._engine._devices[partition]
        on_device = [gradient if gradient is None else gradient.to(device) for gradient in gradients]
        inputs, popped = self._cells[partition][micro_batch].backward(on_device, {k: g if g is None else g.to(device) for k, g in stashed.items()})
        skips.update({(key, micro_batch): gradient for key, gradient in popped.items()})
        return inputs

    def _seed(self):
        """Drawn by the default generator when the first operator draws, so torch.manual_seed() governs it."""
        with self._seed_lock:
            if self._seed_drawn is None:
                self._seed_drawn = int(torch.randint(2**62, ()))
            return self._seed_drawn


def _moved(value, device):
    return value if value.tensor is None else Value(value.tensor.to(device), value.wants_gradient)
