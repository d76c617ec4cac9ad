"""Strata trains, tunes and serves models that are too large for one device.

Pipeline trains an unchanged PyTorch model on stages and replicas, GPipe is torchgpipe's API, and plan(), train() and
generate() do for a recipe what the program `strata` does.
"""

import re

import torch


def _require_torch():
    """Refuses a PyTorch that the module was not built for: their libraries would not fit."""
    built = _built_for()
    have = ".".join(torch.__version__.split(".")[:2])
    if built and built != have:
        raise ImportError(f"strata was built for PyTorch {built}, and this is {torch.__version__}: install torch {built}, "
                          "or build strata again with this one (pip install --no-build-isolation .)")


def _built_for():
    """The minor version of PyTorch that the module was built for; "" if the package does not say."""
    try:
        from strata._built_for import TORCH
    except ImportError:
        return ""
    return re.match(r"\d+\.\d+", TORCH)[0]


_require_torch()

from strata import _core  # noqa: E402
from strata.errors import InternalError, MachineError, StrataError, UserError  # noqa: E402
from strata.gpipe import GPipe  # noqa: E402
from strata.pipeline import Pipeline  # noqa: E402
from strata.plan import Page, Plan  # noqa: E402
from strata.recipes import TrainingResult, generate, plan, train  # noqa: E402

__version__ = _core.version.split(",")[0]
__all__ = ["GPipe", "Page", "Pipeline", "Plan", "TrainingResult", "plan", "train", "generate", "StrataError", "UserError", "MachineError", "InternalError", "__version__"]
