"""Batch norm whose running statistics move once a mini-batch, by the statistics of all its micro-batches.

Source: GPipe (Huang et al. 2019), section 2.2.
"""

import torch
import torch.nn.functional as F
from torch.nn.modules.batchnorm import _BatchNorm

from strata.gpipe.cells import is_recomputing, running_chunks

__all__ = ["DeferredBatchNorm"]


class DeferredBatchNorm(_BatchNorm):
    """Normalises by the micro-batch. After `chunks` micro-batches, or all of a GPipe's mini-batch, the running
    statistics are those that nn.BatchNorm would have after the whole mini-batch."""

    def __init__(self, num_features, eps=1e-5, momentum=0.1, affine=True, chunks=1):
        super().__init__(num_features, eps, momentum, affine, track_running_stats=True)
        self.chunks = chunks
        # Double precision: the variance is a small difference of large sums.
        self.register_buffer("sum", torch.zeros(num_features, dtype=torch.double), persistent=False)
        self.register_buffer("sum_squares", torch.zeros(num_features, dtype=torch.double), persistent=False)
        self._elements = 0
        self._micro_batches = 0

    def forward(self, input):  # noqa: A002: torch's name
        if not self.training:
            return super().forward(input)
        if not is_recomputing():
            self._add(input.detach())
            if self._micro_batches == (running_chunks() or self.chunks):
                self._move()
        return F.batch_norm(input, None, None, self.weight, self.bias, True, 0.0, self.eps)

    def _check_input_dim(self, input):  # noqa: A002
        if input.dim() < 2:
            raise ValueError(f"expected 2 dimensions or more, got {input.dim()}")

    @torch.no_grad()
    def _add(self, values):
        dimensions = [0, *range(2, values.dim())]
        values = values.double()
        self.sum += values.sum(dimensions)
        self.sum_squares += values.square().sum(dimensions)
        self._elements += values.numel() // values.shape[1]
        self._micro_batches += 1

    @torch.no_grad()
    def _move(self):
        self.num_batches_tracked += 1
        share = 1 / float(self.num_batches_tracked) if self.momentum is None else self.momentum
        mean = self.sum / self._elements
        variance = (self.sum_squares / self._elements - mean.square()).clamp_(min=0) * (self._elements / max(1, self._elements - 1))
        self.running_mean.lerp_(mean.to(self.running_mean.dtype), share)
        self.running_var.lerp_(variance.to(self.running_var.dtype), share)
        self.sum.zero_()
        self.sum_squares.zero_()
        self._elements = self._micro_batches = 0

    @classmethod
    def convert_deferred_batch_norm(cls, module, chunks=1):
        """The module, with every batch norm that tracks running statistics replaced; weights are shared."""
        if isinstance(module, DeferredBatchNorm) and module.chunks == chunks:
            return module
        converted = module
        if isinstance(module, _BatchNorm) and module.track_running_stats:
            converted = DeferredBatchNorm(module.num_features, module.eps, module.momentum, module.affine, chunks)
            converted.weight, converted.bias = module.weight, module.bias
            for name in ("running_mean", "running_var", "num_batches_tracked"):
                converted.register_buffer(name, getattr(module, name))
            converted.train(module.training)
            converted.to(module.running_mean.device)
        for name, child in module.named_children():
            converted.add_module(name, cls.convert_deferred_batch_norm(child, chunks))
        return converted
