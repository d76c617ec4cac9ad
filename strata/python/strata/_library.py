"""Finds the compiled module and the program that fit the installed PyTorch.

A wheel has a folder torch_MAJOR_MINOR for each PyTorch that it was built for, a build folder has one module beside
this file. A module and a PyTorch of different minor versions would not fit.
"""

import importlib.machinery
import importlib.util
import sys
from pathlib import Path

import torch

__all__ = ["folder", "load_core"]


def folder() -> Path:
    here, minor = Path(__file__).parent, "_".join(torch.__version__.split(".")[:2])
    if (here / f"torch_{minor}").is_dir():
        return here / f"torch_{minor}"
    built = sorted(path.name.removeprefix("torch_").replace("_", ".") for path in here.glob("torch_*"))
    if built:
        raise ImportError(f"strata was built for PyTorch {' and '.join(built)}, and this is {torch.__version__}: install torch {built[-1]}, "
                          "or build strata again with this one (pip install --no-build-isolation .)")
    return here


def load_core():
    """The module strata._core."""
    spec = importlib.machinery.PathFinder.find_spec("strata._core", [str(folder())])
    if spec is None:
        raise ImportError(f"strata: no compiled module in {folder()}: build it with `make build-all`, or install the package")
    module = importlib.util.module_from_spec(spec)
    sys.modules["strata._core"] = module
    spec.loader.exec_module(module)
    return module
