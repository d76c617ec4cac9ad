"""Strata trains, tunes and serves models that are too large for one device.

Pipeline trains an unchanged PyTorch model on stages and replicas, GPipe is torchgpipe's API, and plan(), train(),
generate() and load_embeddings() do for a recipe what the program `strata` does.
"""

from strata._library import load_core

_core = load_core()

from strata.embeddings import Embeddings, load_embeddings  # noqa: E402
from strata.errors import InternalError, MachineError, StrataError, UserError  # noqa: E402
from strata.gpipe import GPipe  # noqa: E402
from strata.pipeline import Pipeline  # noqa: E402
from strata.plan import Page, Plan  # noqa: E402
from strata.recipes import TrainingResult, generate, plan, train  # noqa: E402

__version__ = _core.version.split(",")[0]
__all__ = ["Embeddings", "GPipe", "Page", "Pipeline", "Plan", "TrainingResult", "plan", "train", "generate", "load_embeddings", "StrataError", "UserError", "MachineError", "InternalError", "__version__"]
