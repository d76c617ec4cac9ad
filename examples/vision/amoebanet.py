"""AmoebaNet-D (Real et al. 2019, arXiv 1802.01548), the network of GPipe's image experiments, by (L, D)."""

import torch
from torch import nn


def relu_conv_norm(inputs, outputs, kernel=1, stride=1, padding=0):
    return nn.Sequential(nn.ReLU(), nn.Conv2d(inputs, outputs, kernel, stride, padding, bias=False), nn.BatchNorm2d(outputs))


class FactorisedReduction(nn.Module):
    """Halves the sizes: two 1 x 1 convolutions see the even and the odd pixels."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.even = nn.Conv2d(inputs, outputs // 2, 1, 2, bias=False)
        self.odd = nn.Conv2d(inputs, outputs // 2, 1, 2, bias=False)
        self.norm = nn.BatchNorm2d(outputs)

    def forward(self, x):
        x = torch.relu(x)
        odd = nn.functional.pad(x[:, :, 1:, 1:], (0, 1, 0, 1))
        return self.norm(torch.cat([self.even(x), self.odd(odd)], 1))


# The operations of a cell, by channels and stride.


def nothing(channels, stride):
    return nn.Identity() if stride == 1 else FactorisedReduction(channels, channels)


def average_3x3(_, stride):
    return nn.AvgPool2d(3, stride, padding=1, count_include_pad=False)


def maximum_3x3(_, stride):
    return nn.MaxPool2d(3, stride, padding=1)


def maximum_2x2(_, stride):
    return nn.MaxPool2d(2, stride)


def conv_1x1(channels, stride):
    return relu_conv_norm(channels, channels, 1, stride)


def bottleneck(channels, *convolutions):
    """Convolutions of (kernel, stride, padding) between two 1 x 1 ones, at a quarter of the channels."""
    narrow = channels // 4
    inside = [relu_conv_norm(narrow, narrow, *convolution) for convolution in convolutions]
    return nn.Sequential(relu_conv_norm(channels, narrow), *inside, relu_conv_norm(narrow, channels))


def conv_3x3(channels, stride):
    return bottleneck(channels, (3, stride, 1))


def conv_1x7_7x1(channels, stride):
    return bottleneck(channels, ((1, 7), (1, stride), (0, 3)), ((7, 1), (stride, 1), (3, 0)))


# Two states are given; each pair of (state, operation) adds up to the next one.
NORMAL = ([(1, conv_1x1), (1, maximum_3x3), (1, nothing), (0, conv_1x7_7x1), (0, conv_1x1),
           (0, conv_1x7_7x1), (2, maximum_3x3), (2, nothing), (1, average_3x3), (5, conv_1x1)], [0, 3, 4, 6])
REDUCTION = ([(0, maximum_2x2), (0, maximum_3x3), (2, nothing), (1, conv_3x3), (2, conv_1x7_7x1),
              (2, maximum_3x3), (3, nothing), (1, maximum_2x2), (2, average_3x3), (3, conv_1x1)], [4, 5, 6])


class Cell(nn.Module):
    """Reads the outputs of the last two cells, and passes its own and its first input on."""

    def __init__(self, inputs, earlier_inputs, channels, reduces, follows_reduction):
        super().__init__()
        operations, self.results = REDUCTION if reduces else NORMAL
        self.squeeze = relu_conv_norm(inputs, channels)
        if follows_reduction:
            self.squeeze_earlier = FactorisedReduction(earlier_inputs, channels)
        elif earlier_inputs != channels:
            self.squeeze_earlier = relu_conv_norm(earlier_inputs, channels)
        else:
            self.squeeze_earlier = nn.Identity()
        self.sources = [source for source, _ in operations]
        self.operations = nn.ModuleList(
            operation(channels, 2 if reduces and source < 2 else 1) for source, operation in operations)
        self.outputs = channels * len(self.results)

    def forward(self, given):
        last, earlier = given if isinstance(given, tuple) else (given, given)
        states = [self.squeeze(last), self.squeeze_earlier(earlier)]
        for i in range(0, len(self.sources), 2):
            states.append(self.operations[i](states[self.sources[i]])
                          + self.operations[i + 1](states[self.sources[i + 1]]))
        return torch.cat([states[i] for i in self.results], 1), last


class Classifier(nn.Module):
    def __init__(self, inputs, classes):
        super().__init__()
        self.pool, self.linear = nn.AdaptiveAvgPool2d(1), nn.Linear(inputs, classes)

    def forward(self, given):
        return self.linear(self.pool(given[0]).flatten(1))


def amoebanet_d(layers, width, classes=10):
    """`layers`: L, a multiple of 3; `width`: D, a multiple of 16."""
    channels = width // 4
    stem = nn.Sequential(nn.ReLU(), nn.Conv2d(3, channels, 3, 2, 1, bias=False), nn.BatchNorm2d(channels))
    network, inputs, earlier, follows = [stem], channels, channels, False
    for reduces, count in ((True, 1), (True, 1), (False, layers // 3), (True, 1), (False, layers // 3), (True, 1),
                           (False, layers // 3)):
        channels *= 2 if reduces else 1
        for _ in range(count):
            cell = Cell(inputs, earlier, channels, reduces, follows)
            earlier, inputs, follows = inputs, cell.outputs, reduces
            network.append(cell)
    return nn.Sequential(*network, Classifier(inputs, classes))
