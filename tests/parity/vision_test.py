"""The networks of examples/vision: parameter counts of published tables, and equal bits on one rank and on several stages."""

import pathlib
import re
import sys
import unittest

import graph_case
from graph_case import torch

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "examples/vision"))
from amoebanet import amoebanet_d  # noqa: E402  pylint: disable=wrong-import-position
from resnet import resnet101  # noqa: E402  pylint: disable=wrong-import-position
from small_resnet import small_resnet  # noqa: E402  pylint: disable=wrong-import-position
from unet import UNet  # noqa: E402  pylint: disable=wrong-import-position
from vit import vit  # noqa: E402  pylint: disable=wrong-import-position

# GPipe, table 1, and torchgpipe's tables of AmoebaNet-D (L, D) and U-Net (B, C).
AMOEBANETS = {(18, 208): 81_505_540, (18, 416): 319_024_120, (18, 544): 542_734_840, (36, 544): 1_055_832_376,
              (72, 512): 1_844_858_344, (18, 256): 122_470_120}
UNETS = {(6, 72): 362_157_516, (11, 128): 2_213_834_176, (24, 128): 4_993_859_008, (24, 160): 7_802_903_600,
         (48, 160): 15_822_206_000, (5, 64): 232_687_328}


def parameters(model):
    return sum(parameter.numel() for parameter in model.parameters())


class Counts(unittest.TestCase):
    def test_parameters_are_those_of_published_tables(self):
        with torch.device("meta"):
            for numbers, count in AMOEBANETS.items():
                self.assertEqual(parameters(amoebanet_d(*numbers, classes=1000)), count, numbers)
            claimed = (ROOT / "strata/claim/amoebanet_counts.h").read_text()
            for layers, filters, count in re.findall(r"AmoebaNetCount\{(\d+), (\d+), (\d+)\}", claimed):
                self.assertEqual(AMOEBANETS[int(layers), int(filters)], int(count))
            for numbers, count in UNETS.items():
                self.assertEqual(parameters(UNet(*numbers)), count, numbers)
            self.assertEqual(parameters(resnet101()), 44_549_160)
            self.assertEqual(parameters(vit()), 86_567_656)


class Vision(graph_case.GraphTest):
    def test_stages_have_the_bits_of_one_rank(self):
        image = torch.rand(4, 3, 64, 64)
        classes = torch.randint(0, 10, (4,))
        for name, model, x, targets, counts in (
                ("AmoebaNet-D (6, 32)", amoebanet_d(6, 32), image, classes, (2, 3)),
                ("U-Net (2, 4)", UNet(2, 4), image, torch.rand(4, 1, 64, 64), (2, 4)),
                ("ViT", vit(64, width=32, layers=2, heads=2, classes=10, dropout=0.1), image, classes, (2,)),
                ("small ResNet", small_resnet(), image[:, :1, :28, :28].contiguous(), classes, (3,))):
            with self.subTest(name):
                self.export(model.train(), x)
                self.write(x, targets)
                one = self.strata(x, targets, steps=2, micro_batch=2)
                for stages in counts:
                    self.assert_bits(self.strata(x, targets, steps=2, micro_batch=2, stages=stages, recompute=stages > 2), one)

    def test_gradients_without_batch_norm_are_those_of_pytorch(self):
        model, x = vit(64, width=32, layers=2, heads=2, classes=10).train(), torch.rand(4, 3, 64, 64)
        targets = torch.randint(0, 10, (4,))
        self.export(model, x)
        self.write(x, targets)
        self.assert_bits(self.strata(x, targets, micro_batch=2), self.eager(model, x, targets, 2))


if __name__ == "__main__":
    unittest.main()
