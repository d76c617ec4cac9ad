"""Exports a model for the ranks of a pipeline."""

import contextlib
import io
import logging
import sys
import warnings

import torch

from strata.errors import UserError
from strata.python_layers import NeedsPython, PythonLayers, watched

__all__ = ["export_model"]


def export_model(model, inputs, path, python_layers):
    """Writes the model in training mode, for any number of samples. Returns the layers that run in Python.

    Args:
        inputs: tensors of a mini-batch. python_layers: paths of modules that run in Python; modules that torch.export
            refuses join them, with a warning.
    """
    modes = [(module, module.training) for module in model.modules()]
    try:
        model.train()
        names = list(python_layers)
        while True:
            layers = PythonLayers(model, names, inputs)
            try:
                program = _export_or_name(model, inputs, layers, names)
                if program is not None:
                    torch.export.save(program, path)
                    return layers
            except BaseException:
                layers.close()
                raise
            layers.close()
    finally:
        for module, training in modes:
            module.training = training


def _export_or_name(model, inputs, layers, names):
    """The exported model; None if another module has to run in Python, whose name joins `names`."""
    # torch.export keeps sizes of 1 as constants.
    examples = tuple(tensor if tensor.shape[0] > 1 else tensor.repeat(2, *[1] * (tensor.dim() - 1)) for tensor in inputs)
    batch = torch.export.Dim("batch", min=2)
    with layers.replaced(), watched(model) as watch:
        try:
            with _quiet():
                return torch.export.export(model, examples, dynamic_shapes=tuple({0: batch} for _ in examples), strict=False)
        except Exception as error:
            name = watch.innermost
            if isinstance(error, UserError):
                raise
            if not name or name in names:
                if isinstance(error, NeedsPython):
                    raise UserError(f"the model calls an autograd.Function itself: {error}; move the call into a submodule") from None
                raise
            reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
            warnings.warn(f"{name!r} runs in Python, where ranks of a process take turns: {reason}", stacklevel=5)
            names.append(name)
            return None


@contextlib.contextmanager
def _quiet():
    """Drops what torch.export prints and logs before it raises an error; the error says it."""
    def drop(_):
        return False

    logger = logging.getLogger("torch.fx.experimental.symbolic_shapes")
    logger.addFilter(drop)
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            yield
        sys.stdout.write(printed.getvalue())  # the model's own words
    finally:
        logger.removeFilter(drop)
