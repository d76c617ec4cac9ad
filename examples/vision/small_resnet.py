"""A small residual network for images of 28 x 28 pixels and one channel."""

import torch
from torch import nn


def conv_norm(inputs, outputs, stride=1):
    return nn.Sequential(nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs))


class Block(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.first, self.second = conv_norm(inputs, outputs, stride), conv_norm(outputs, outputs)
        self.short = conv_norm(inputs, outputs, stride) if stride > 1 else nn.Identity()

    def forward(self, x):
        return torch.relu(self.second(torch.relu(self.first(x))) + self.short(x))


def small_resnet(classes=10):
    return nn.Sequential(conv_norm(1, 16), nn.ReLU(), Block(16, 16, 1), Block(16, 32, 2), Block(32, 64, 2),
                         nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.1), nn.Linear(64, classes))
