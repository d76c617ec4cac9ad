#!/usr/bin/env python3
"""Runs torchgpipe's own tests against strata.gpipe.

    git clone https://github.com/kakaobrain/torchgpipe
    python3 tools/torchgpipe_tests.py torchgpipe [arguments of pytest]

Only the folder `tests` is used: `import torchgpipe` gives strata.gpipe. Needs pytest, and strata, installed or in
PYTHONPATH. docs/gpipe.md lists the tests that cannot apply, with the reasons; they are left out here.
"""

import contextlib
import importlib
import sys
import types
import warnings
from pathlib import Path

import pytest

from strata.gpipe.skip.skippable import skip_stages

ALIASES = {
    "torchgpipe": "strata.gpipe",
    "torchgpipe.gpipe": "strata.gpipe.gpipe",
    "torchgpipe.batchnorm": "strata.gpipe.batchnorm",
    "torchgpipe.balance": "strata.gpipe.balance",
    "torchgpipe.balance.profile": "strata.gpipe.balance.profile",
    "torchgpipe.skip": "strata.gpipe.skip",
    "torchgpipe.skip.tracker": "strata.gpipe.skip.tracker",
}
FILES = ["test_gpipe.py", "test_bugs.py", "test_inplace.py", "test_transparency.py", "test_deferred_batch_norm.py",
         "test_balance.py", "skip"]

# Files and tests of torchgpipe's own parts, and one that PyTorch itself fails (docs/gpipe.md).
LEFT_OUT = ["skip/test_portal.py", "skip/test_tracker.py", "skip/test_leak.py"]
LEFT_OUT_TESTS = {"test_checkpoint_mode", "test_checkpoint_eval", "test_exception_early_stop_asap", "test_input_requiring_grad"}


class Selection:
    """A plugin of pytest: leaves tests out."""

    def pytest_collection_modifyitems(self, config, items):
        config.hook.pytest_deselected(items=[item for item in items if item.name in LEFT_OUT_TESTS])
        items[:] = [item for item in items if item.name not in LEFT_OUT_TESTS]


class Layout:
    """torchgpipe's layout of skips, made of ours."""

    def __init__(self, partitions):
        self.stages = skip_stages(partitions)

    def copy_policy(self, partition):
        return sorted((stasher, *key) for key, (stasher, popper) in self.stages.items() if popper == partition)


def warns(expected, *arguments, **options):
    """pytest.warns(), and its former meaning of None: records whatever is warned."""
    if expected is not None:
        return pytest_warns(expected, *arguments, **options)
    return contextlib.closing(Recorded())


class Recorded(list):
    """A list of warnings, from now until close()."""

    def __init__(self):
        super().__init__()
        self.catcher = warnings.catch_warnings(record=True)
        self.log = self.catcher.__enter__()

    def close(self):
        self.catcher.__exit__()
        self.extend(self.log)


pytest_warns = pytest.warns


def module_of(name, **members):
    module = types.ModuleType(name)
    module.__dict__.update(members)
    sys.modules[name] = module


def main():
    if len(sys.argv) < 2 or not (Path(sys.argv[1]) / "tests").is_dir():
        sys.exit(__doc__)
    for name, own in ALIASES.items():
        sys.modules[name] = importlib.import_module(own)
    module_of("torchgpipe.skip.layout", inspect_skip_layout=Layout)
    # Nodes that our graphs do not have, which a test looks for.
    nodes = {name: type(name, (), {"_backward_cls": type(name, (), {})}) for name in ("PortalBlue", "PortalCopy", "PortalOrange")}
    module_of("torchgpipe.skip.portal", **nodes)
    pytest.warns = warns
    tests = Path(sys.argv[1]) / "tests"
    sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", f"--rootdir={sys.argv[1]}", *(str(tests / name) for name in FILES),
                          *(f"--ignore={tests / name}" for name in LEFT_OUT), *sys.argv[2:]], plugins=[Selection()]))


if __name__ == "__main__":
    main()
