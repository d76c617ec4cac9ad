"""ResNet-101 (He et al. 2015, arXiv 1512.03385), with the stride in the 3 x 3 convolution."""

import torch
from torch import nn

BLOCKS = (3, 4, 23, 3)


def conv_norm(inputs, outputs, kernel, stride=1):
    return nn.Sequential(nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False), nn.BatchNorm2d(outputs))


class Bottleneck(nn.Module):
    def __init__(self, inputs, narrow, stride):
        super().__init__()
        outputs = 4 * narrow
        self.squeeze, self.conv = conv_norm(inputs, narrow, 1), conv_norm(narrow, narrow, 3, stride)
        self.expand = conv_norm(narrow, outputs, 1)
        self.short = conv_norm(inputs, outputs, 1, stride) if stride != 1 or inputs != outputs else nn.Identity()

    def forward(self, x):
        y = torch.relu(self.conv(torch.relu(self.squeeze(x))))
        return torch.relu(self.expand(y) + self.short(x))


def resnet101(classes=1000):
    layers, inputs = [conv_norm(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)], 64
    for stage, count in enumerate(BLOCKS):
        narrow = 64 * 2**stage
        for block in range(count):
            layers.append(Bottleneck(inputs, narrow, 2 if stage > 0 and block == 0 else 1))
            inputs = 4 * narrow
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, classes))
