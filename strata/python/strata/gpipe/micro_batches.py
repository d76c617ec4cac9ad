"""Mini-batches, which are a tensor or a tuple of tensors, and their micro-batches."""

import torch

__all__ = ["check", "as_tuple", "like", "scatter", "gather"]


def check(value):
    """Refuses what is neither a tensor nor a tuple of tensors."""
    for tensor in value if isinstance(value, tuple) else (value,):
        if not isinstance(tensor, torch.Tensor):
            raise TypeError(f"expected a tensor, or a tuple of tensors; got {type(tensor).__name__}")


def as_tuple(value):
    return value if isinstance(value, tuple) else (value,)


def like(is_tuple, tensors):
    """The tensors as a module returned them."""
    return tuple(tensors) if is_tuple else tensors[0]


def scatter(tensors, chunks):
    """At most `chunks` micro-batches, each a tuple of views; the last one may be smaller."""
    return list(zip(*(tensor.chunk(chunks) for tensor in tensors)))


def gather(batches):
    """The mini-batch of the micro-batches' tensors. A single one is not copied."""
    return [parts[0] if len(parts) == 1 else torch.cat(parts) for parts in zip(*batches)]
