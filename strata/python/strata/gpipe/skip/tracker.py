"""Where stashed tensors wait to be popped: one tracker for each micro-batch and thread."""

import threading
from contextlib import contextmanager

__all__ = ["SkipTracker", "current_skip_tracker", "use_skip_tracker"]

_thread = threading.local()


class SkipTracker:
    """The tensors that were stashed and not popped yet, by (namespace, name).

    `arrived`: those that other partitions stashed.
    """

    def __init__(self, arrived=None):
        self.tensors = {}
        self._arrived = dict(arrived or {})

    def stash(self, key, tensor):
        self.tensors[key] = tensor

    def pop(self, key):
        if key in self.tensors:
            return self.tensors.pop(key)
        if key in self._arrived:
            return self._arrived.pop(key)
        raise RuntimeError(f"'{key[1]}' was popped before it was stashed")


def current_skip_tracker():
    """The calling thread's tracker."""
    if not hasattr(_thread, "tracker"):
        _thread.tracker = SkipTracker()
    return _thread.tracker


@contextmanager
def use_skip_tracker(tracker):
    """Makes `tracker` the calling thread's."""
    before = current_skip_tracker()
    _thread.tracker = tracker
    try:
        yield tracker
    finally:
        _thread.tracker = before
