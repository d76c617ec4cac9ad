#!/usr/bin/env python3
"""Writes a network of this folder as a model that `strata train --model` reads.

    python3 examples/vision/export.py small_resnet --out model.pt2
    python3 examples/vision/export.py amoebanet 6 64 --size 224 --out amoebanet.pt2
    python3 examples/vision/export.py unet 2 8 --size 64 --out unet.pt2

Only this step needs Python. A model of your own is exported in the same way: the last lines of this file.
"""

import argparse

import torch
from amoebanet import amoebanet_d
from resnet import resnet101
from small_resnet import small_resnet
from unet import UNet
from vit import vit

NETWORKS = {  # name: (makes the network from its numbers and the size of images, channels of an image)
    "amoebanet": (lambda size, layers, width: amoebanet_d(layers, width), 3),
    "unet": (lambda size, count, channels: UNet(count, channels), 3),
    "resnet101": (lambda size: resnet101(), 3),
    "vit": (lambda size: vit(size), 3),
    "small_resnet": (lambda size: small_resnet(), 1),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("network", choices=NETWORKS)
    parser.add_argument("numbers", type=int, nargs="*", help="amoebanet: L D; unet: B C")
    parser.add_argument("--size", type=int, help="width and height of images (default: 28, or 224)")
    parser.add_argument("--seed", type=int, default=1, help="of the first weights")
    parser.add_argument("--out", required=True)
    options = parser.parse_args()
    make, channels = NETWORKS[options.network]
    size = options.size or (28 if channels == 1 else 224)
    torch.manual_seed(options.seed)
    try:
        model = make(size, *options.numbers)
    except TypeError:
        parser.error(f"{options.network} needs other numbers than {options.numbers}: see --help")

    # Training mode keeps dropout and batch norm; the number of samples stays open.
    example = torch.randn(2, channels, size, size)
    batch = torch.export.Dim("batch", min=2)
    program = torch.export.export(model.train(), (example,), dynamic_shapes=({0: batch},), strict=False)
    torch.export.save(program, options.out)
    print(f"{options.out}: {sum(p.numel() for p in model.parameters()):,} parameters, images {channels} x {size} x {size}")


if __name__ == "__main__":
    main()
