"""Reads the embeddings that a recommender has learnt."""

from __future__ import annotations

import operator
import os
from collections.abc import Sequence

import numpy
import torch
from torch.utils.dlpack import from_dlpack

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
        return self._places([value]) is not None

    def __getitem__(self, ids: int | Sequence[int]) -> torch.Tensor:
        several = numpy.ndim(ids) > 0
        wanted = [operator.index(value) for value in (ids if several else [ids])]
        places = self._places(wanted)
        if places is None:
            raise KeyError(next(value for value in wanted if value not in self))
        found = self.vectors[torch.from_numpy(places)]
        return found if several else found[0]

    def _places(self, wanted):
        """Where these ids are; None if one is missing."""
        if any(not 0 <= value < 2**64 for value in wanted):
            return None
        values = numpy.array(wanted, dtype=numpy.uint64)
        places = numpy.searchsorted(self.ids, values)
        there = places < len(self.ids)
        there[there] = self.ids[places[there]] == values[there]
        return places if there.all() else None

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
    for name, ids, vectors in _core.load_embeddings(os.fspath(checkpoint)):
        tables[name] = Embeddings(name, from_dlpack(ids).numpy().view(numpy.uint64), from_dlpack(vectors))
    return tables
