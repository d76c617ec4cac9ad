"""Skips the tests of the package where it was not built."""

import sys

SKIPPED = 77  # SKIP_RETURN_CODE of these tests


def import_strata():
    try:
        import torch

        import strata
    except ImportError as error:
        print(f"skipped: the package cannot be imported ({error})")
        sys.exit(SKIPPED)
    torch.set_num_threads(1)
    return strata
