#!/usr/bin/env python3
"""Writes the peers' GPT as an exported model, and tokens to train it on, for bench/graph.

    export.py FOLDER        FOLDER/model.pt2, inputs.npy, targets.npy
"""

import sys
from pathlib import Path

import numpy
import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from sizes import Sizes  # noqa: E402
from torch_gpt import Stage, make_batch  # noqa: E402

MINI_BATCHES = 8


def main():
    folder, sizes = Path(sys.argv[1]), Sizes()
    generator = torch.Generator().manual_seed(1)
    inputs, targets = (torch.cat(parts) for parts in zip(*(make_batch(sizes, generator) for _ in range(MINI_BATCHES))))
    numpy.save(folder / "inputs.npy", inputs.numpy())
    numpy.save(folder / "targets.npy", targets.numpy())
    model = Stage(sizes, 0, sizes.layers).train()
    samples = torch.export.Dim("samples", min=2)
    program = torch.export.export(model, (inputs[:2],), dynamic_shapes=({0: samples},), strict=False)
    torch.export.save(program, str(folder / "model.pt2"))


if __name__ == "__main__":
    main()
