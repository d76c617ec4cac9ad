"""Trains networks of examples/vision on one rank and in PyTorch's eager mode: losses, gradients and weights of 20 steps have equal bits."""

import unittest

import graph_case
from graph_case import torch
from vision_test import UNet, amoebanet_d, resnet101, vit


class VisionEager(graph_case.GraphTest):
    IMAGE, CLASSES = torch.rand(4, 3, 64, 64), torch.randint(0, 10, (4,))

    def trained(self, model, targets):
        torch.set_num_threads(1)
        for module in model.modules():
            if "Dropout" in type(module).__name__:
                module.p = 0.0
        self.export(model.train(), self.IMAGE)
        self.write(self.IMAGE, targets)
        return self.strata(self.IMAGE, targets), self.eager(model, self.IMAGE, targets, len(self.IMAGE))

    def test_one_rank_has_the_bits_of_pytorch(self):
        for name, model, targets in (("AmoebaNet-D (6, 32)", amoebanet_d(6, 32), self.CLASSES),
                                     ("U-Net (2, 4)", UNet(2, 4), torch.rand(4, 1, 64, 64)), ("ResNet-101", resnet101(), self.CLASSES),
                                     ("ViT", vit(64, width=64, layers=4, heads=4, classes=10), self.CLASSES)):
            with self.subTest(name):
                found, expected = self.trained(model, targets)
                statistics = [state for state in expected[2] if "running" in state]
                self.assert_bits(found, expected, skipped=statistics)
                for state in statistics:  # summed in fp64 here
                    self.assertTrue(torch.allclose(found[2][state], expected[2][state], rtol=1e-4, atol=1e-5), state)
                print(f"{name}: {graph_case.STEPS} steps with equal bits, loss {found[0][0]:.4f} to {found[0][-1]:.4f}", flush=True)


if __name__ == "__main__":
    unittest.main()
