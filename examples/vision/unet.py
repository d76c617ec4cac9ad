"""U-Net (Ronneberger et al. 2015, arXiv 1505.04597) by (B, C): B convolutions a level, C channels at the first."""

import torch
from torch import nn

LEVELS = 5


def convolutions(inputs, inside, outputs, count):
    """`count` times 3 x 3 convolution, dropout of channels, instance norm, leaky ReLU."""
    widths = [inputs] + [inside] * (count - 1) + [outputs]
    layers = []
    for wide, next_wide in zip(widths, widths[1:]):
        layers += [nn.Conv2d(wide, next_wide, 3, padding=1, bias=False), nn.Dropout2d(0.1), nn.InstanceNorm2d(next_wide), nn.LeakyReLU()]
    return nn.Sequential(*layers)


class UNet(nn.Module):
    """Each level halves the sizes; what it had before is joined again on the way up."""

    def __init__(self, count, channels, inputs=3, outputs=1):
        super().__init__()
        widths = [channels * 2**level for level in range(LEVELS)]
        self.down = nn.ModuleList(
            convolutions(before, width, width, count) for before, width in zip([inputs, *widths], widths))
        self.bottom = convolutions(widths[-1], 2 * widths[-1], widths[-1], count)
        self.up = nn.ModuleList(
            convolutions(2 * width, width // 2, width // 2, count) for width in reversed(widths))
        self.shrink, self.grow = nn.MaxPool2d(2), nn.Upsample(scale_factor=2)
        self.head = nn.Conv2d(channels // 2, outputs, 1, bias=False)

    def forward(self, x):
        skips = []
        for down in self.down:
            x = down(x)
            skips.append(x)
            x = self.shrink(x)
        x = self.bottom(x)
        for up in self.up:
            x = up(torch.cat([skips.pop(), self.grow(x)], 1))
        return self.head(x)
