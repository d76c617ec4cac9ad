"""Reads the embeddings that a recommender has learnt."""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy
import torch

from strata import _core

__all__ = ["Embeddings", "load_embeddings"]


class Embeddings:
    """A table of embeddings.

    Attributes:
        ids: a numpy array of uint64, ascending. vectors: a tensor of fp32, [ids, width], in their order.

    `table[id]` is one vector, and `table[ids]` a matrix; KeyError: the model has not seen an id.
    """

    def __init__(self, name: str, ids: numpy.ndarray, vectors: torch.Tensor):
        self.name, self.ids, self.vectors = name, ids, vectors

    def __len__(self) -> int:
        return len(self.ids)

    def __contains__(self, value: int) -> bool:
        place = int(numpy.searchsorted(self.ids, numpy.uint64(value)))
        return place < len(self.ids) and int(self.ids[place]) == value

    def __getitem__(self, ids: int | Sequence[int]) -> torch.Tensor:
        wanted = numpy.asarray(ids, dtype=numpy.uint64)
        places = numpy.searchsorted(self.ids, wanted)
        there = (places < len(self.ids)) & (self.ids[numpy.minimum(places, len(self.ids) - 1)] == wanted) if len(self) else numpy.zeros_like(wanted, dtype=bool)
        if not there.all():
            raise KeyError(int(wanted[~there].flat[0]))
        return self.vectors[torch.from_numpy(numpy.atleast_1d(places))].reshape(*wanted.shape, -1)

    def __repr__(self) -> str:
        return f"Embeddings({self.name!r}, {len(self)} ids, width {self.vectors.shape[1]})"


def load_embeddings(checkpoint: str | os.PathLike) -> dict[str, Embeddings]:
    """The embeddings of a recommender's checkpoint, by the names of their tables.

    Args:
        checkpoint: a checkpoint, or the folder of several, of which the newest is read. Its run kept the rows in its own
            process; of rows on servers, `strata row` reads one.

    An id is a number of the log, or of a text; `strata row CHECKPOINT FEATURE --text TEXT` prints it.
    """
    tables = {}
    for name, ids, values, width in _core.load_embeddings(os.fspath(checkpoint)):
        vectors = torch.from_numpy(numpy.frombuffer(values, dtype=numpy.float32).reshape(-1, width).copy())
        tables[name] = Embeddings(name, numpy.frombuffer(ids, dtype=numpy.uint64), vectors)
    return tables
