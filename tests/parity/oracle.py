"""Runs our models for comparisons with those of transformers."""

import os
import subprocess
import sys

SKIPPED = 77  # SKIP_RETURN_CODE of these tests


def skip(reason):
    print(f"skipped: {reason}")
    sys.exit(SKIPPED)


def import_transformers():
    os.environ["HF_HUB_OFFLINE"] = "1"
    try:
        import torch
        import transformers
    except ImportError as error:
        skip(f"transformers is not installed ({error})")
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    return transformers


def parity_model(*arguments, tokens=()):
    """The program's output, as rows of numbers; `tokens`: one sample per row."""
    lines = "".join(" ".join(map(str, sample)) + "\n" for sample in tokens)
    done = subprocess.run([os.environ["PARITY_MODEL"], *map(str, arguments)], input=lines,
                          capture_output=True, text=True)
    if done.returncode != 0:
        raise AssertionError(f"parity_model {arguments[0]}: {done.stderr}")
    return [[float(number) for number in line.split()] for line in done.stdout.splitlines()]
