"""Measures each layer of a sequence on a copy: seconds, and bytes kept for the backward."""

import copy
import time

import torch

from strata.gpipe import micro_batches
from strata.gpipe.skip.tracker import SkipTracker, use_skip_tracker

__all__ = ["layerwise_sandbox", "profile_sizes", "profile_times"]


class _DetachingTracker(SkipTracker):
    """Each layer has a graph of its own, so what it stashes leaves that."""

    def stash(self, key, tensor):
        super().stash(key, None if tensor is None else tensor.detach().requires_grad_(tensor.requires_grad))


def layerwise_sandbox(module, device):
    """Yields a copy of each layer on the device, in training mode."""
    for layer in module:
        yield copy.deepcopy(layer).to(device).train()


def profile_times(module, sample, timeout, device):
    """Seconds of forward and backward of each layer: the sum over as many passes as fit in `timeout`."""
    if any(parameter.grad is not None for parameter in module.parameters()):
        raise ValueError("some parameter already has gradient")
    device = torch.device(device)
    layers = list(layerwise_sandbox(module, device))
    seconds = [0.0] * len(layers)
    end = time.monotonic() + timeout
    while True:
        value, tracker = _on(sample, device), _DetachingTracker()
        for index, layer in enumerate(layers):
            value = _detached(value)
            _wait_for(device)
            begin = time.perf_counter()
            with use_skip_tracker(tracker):
                value = layer(value)
            _backward(value)
            _wait_for(device)
            seconds[index] += time.perf_counter() - begin
        if time.monotonic() >= end:
            return seconds


def profile_sizes(module, input, chunks, param_scale, device):  # noqa: A002
    """Bytes of each layer."""
    device = torch.device(device)
    value = micro_batches.like(isinstance(input, tuple), [tensor.chunk(chunks)[0] for tensor in micro_batches.as_tuple(input)])
    value = _on(value, device)
    sizes, tracker = [], _DetachingTracker()
    for layer in layerwise_sandbox(module, device):
        value = _detached(value)
        own = {parameter.untyped_storage().data_ptr() for parameter in layer.parameters()}
        kept = {}

        def keep(tensor, own=own, kept=kept):
            storage = tensor.untyped_storage()
            if storage.data_ptr() not in own:
                kept[storage.data_ptr()] = storage.nbytes()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor), use_skip_tracker(tracker):
            value = layer(value)
        kept.update({tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes() for tensor in micro_batches.as_tuple(value)})
        parameters = sum(parameter.numel() * parameter.element_size() for parameter in layer.parameters())
        sizes.append(sum(kept.values()) + int(parameters * param_scale))
    return sizes


def _on(value, device):
    micro_batches.check(value)
    return micro_batches.like(isinstance(value, tuple), [t.detach().to(device).requires_grad_(t.requires_grad) for t in micro_batches.as_tuple(value)])


def _detached(value):
    return micro_batches.like(isinstance(value, tuple), [t.detach().requires_grad_(t.requires_grad) for t in micro_batches.as_tuple(value)])


def _backward(value):
    tensors = [tensor for tensor in micro_batches.as_tuple(value) if tensor.requires_grad]
    if tensors:
        torch.autograd.backward(tensors, tensors)


def _wait_for(device):
    if device.type != "cpu":
        torch.accelerator.synchronize(device)
