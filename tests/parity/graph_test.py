"""Compares losses, gradients and weights of exported models with those of PyTorch's eager mode, and meshes with one another."""

import unittest

from graph_case import GraphTest, Language, TOKENS, UNet, gpt2, llama, nn, perceptron, randomised, torch


class Graph(GraphTest):

    def cases(self):
        ids = TOKENS
        yield "perceptron", perceptron(), torch.randn(16, 12), torch.randint(0, 5, (16,)), 6
        yield "language", Language(), ids[:, :-1], ids[:, 1:], 11
        yield "gpt2", gpt2(), ids[:, :-1], ids[:, 1:], 9
        yield "llama", llama(), ids[:, :-1], ids[:, 1:], 7

    def test_one_rank_has_the_bits_of_pytorch(self):
        """Of eager mode; for Llama of the exported graph, run by PyTorch, whose bits differ from eager mode's."""
        for name, model, x, targets, layers in self.cases():
            self.export(randomised(model), x)
            self.write(x, targets)
            tied = len(list(model.parameters())) < len(list(model.named_parameters(remove_duplicate=False)))
            for micro_batch in (len(x), 4):
                with self.subTest(name, micro_batch=micro_batch):
                    found = self.strata(x, targets, micro_batch=micro_batch)
                    self.assertEqual(len(found[3]), layers, found[3])
                    program = torch.export.load(str(self.folder / "model.pt2"))
                    model.load_state_dict(program.state_dict)
                    oracle = program.module() if name == "llama" else model
                    # Layers add up their uses of a weight apart from each other.
                    apart = tied and micro_batch < len(x)
                    self.assert_bits(found, self.eager(oracle, x, targets, micro_batch), 2e-6 if apart else 0)

    def test_stages_recompute_and_tiers_change_no_bit(self):
        for name, model, x, targets, _ in self.cases():
            with self.subTest(name):
                self.export(randomised(model), x)
                self.write(x, targets)
                expected = self.strata(x, targets, micro_batch=4)
                for more in ({"stages": 2}, {"stages": 3}, {"stages": 2, "recompute": True}, {"tier": "host"},
                             {"stages": 2, "tier": "disk"}, {"stages": 2, "schedule": "zb-h1"},
                             {"stages": 3, "schedule": "zb-h2", "recompute": True}, {"stages": 4, "schedule": "zbv"}):
                    self.assert_bits(self.strata(x, targets, micro_batch=4, **more), expected)
                self.assert_bits(self.strata(x, targets, micro_batch=4, dp=2, zero=3), expected, tolerance=2e-5)

    def test_own_operations_change_only_rounding(self):
        for name, model, x, targets, _ in self.cases():
            self.export(model, x)
            self.write(x, targets)
            exact, own = (self.strata(x, targets, micro_batch=4, own=own) for own in (False, True))
            with self.subTest(name):
                for ours, theirs in zip(own[0], exact[0], strict=True):
                    self.assertAlmostEqual(ours, theirs, delta=1e-5 * abs(theirs))
                for weight, value in exact[1].items():
                    self.assertTrue(torch.allclose(own[1][weight], value, rtol=1e-4, atol=1e-6), weight)
                self.assert_bits(self.strata(x, targets, micro_batch=4, own=True, stages=2, recompute=True), own)
                self.assert_bits(self.strata(x, targets, micro_batch=4, own=True, stages=3, schedule="zb-h2"), own)

    def test_batch_norm_normalises_micro_batches_and_follows_the_mini_batch(self):
        model, x, targets = randomised(UNet()).train(), torch.randn(8, 3, 16, 16), torch.randn(8, 3, 16, 16)
        self.export(model, x)
        self.write(x, targets)
        whole = self.strata(x, targets)
        expected = self.eager(model, x, targets, len(x))
        self.assert_bits(whole, expected, tolerance=0, skipped=[name for name in expected[2] if "running" in name])
        for name, value in expected[2].items():  # summed in fp64 here
            if "running" in name:
                self.assertTrue(torch.allclose(whole[2][name], value, rtol=1e-5, atol=1e-6), name)
        parts = self.strata(x, targets, micro_batch=4)
        self.assertNotEqual(parts[0], whole[0])
        for more in ({"stages": 3}, {"stages": 4, "recompute": True}, {"tier": "host"}, {"stages": 3, "schedule": "zb-h2"},
                     {"stages": 4, "schedule": "zbv"}):
            self.assert_bits(self.strata(x, targets, micro_batch=4, **more), parts)

    def test_batch_norm_that_is_frozen_or_has_no_weights(self):
        model = nn.Sequential(nn.BatchNorm1d(12, affine=False), nn.Linear(12, 12), nn.BatchNorm1d(12), nn.Linear(12, 5)).train()
        model[2].eval()
        for buffer in (model[2].running_mean, model[2].running_var):
            buffer.add_(0.3)
        x, targets = torch.randn(16, 12) + 2, torch.randint(0, 5, (16,))
        self.export(model, x)
        self.write(x, targets)
        found, expected = self.strata(x, targets), self.eager(model, x, targets, len(x))
        statistics = [name for name in expected[2] if "running" in name]
        self.assert_bits(found, expected, skipped=statistics)
        for name in statistics[:2]:
            self.assertTrue(torch.allclose(found[2][name], expected[2][name], rtol=1e-5, atol=1e-6), name)
        self.assertNotIn("2.running_mean", found[2])  # a constant

    def test_gradients_of_a_value_are_added_from_its_last_use_to_its_first(self):
        class Cell(nn.Module):
            """Reads its older input once and its newer one five times, twice in one operator."""

            def __init__(self, width):
                super().__init__()
                self.maps = nn.ModuleList(nn.Linear(width, width) for _ in range(4))

            def forward(self, older, newer):
                a, b, c, d = self.maps
                return torch.sub(newer, newer, alpha=0.3) + newer + a(older) * b(newer).sigmoid() + torch.cat([c(newer)[:, :6], d(newer)[:, 6:]], 1)

        class Cells(nn.Module):
            def __init__(self):
                super().__init__()
                self.first, self.last = nn.Linear(12, 12), nn.Linear(12, 5)
                self.cells = nn.ModuleList(Cell(12) for _ in range(3))

            def forward(self, x):
                older = newer = torch.tanh(self.first(x))
                for cell in self.cells:
                    older, newer = newer, cell(older, newer)
                return self.last(newer + older)

        model, x, targets = randomised(Cells()), torch.randn(16, 12), torch.randint(0, 5, (16,))
        self.export(model, x)
        self.write(x, targets)
        found = self.strata(x, targets)
        self.assert_bits(found, self.eager(model, x, targets, len(x)))
        for more in ({"stages": 2}, {"stages": 4, "recompute": True}, {"stages": 2, "tier": "host"},
                     {"stages": 3, "schedule": "zb-h2"}):
            self.assert_bits(self.strata(x, targets, **more), found)

    def test_masks_may_be_changed_in_place(self):
        class Masked(nn.Module):
            def __init__(self):
                super().__init__()
                self.first, self.last = nn.Linear(12, 12), nn.Linear(12, 5)

            def forward(self, x):
                mask = x > 0
                mask &= x < 1
                mask |= x < -1
                return self.last(self.first(x) * mask + mask)

        model, x, targets = Masked(), torch.randn(16, 12), torch.randint(0, 5, (16,))
        self.export(model, x)
        self.write(x, targets)
        self.assert_bits(self.strata(x, targets), self.eager(model, x, targets, len(x)))

    def test_frozen_parameters_stay(self):
        model, x, targets = perceptron(), torch.randn(16, 12), torch.randint(0, 5, (16,))
        for parameter in model[1].parameters():
            parameter.requires_grad_(False)
        self.export(model, x)
        self.write(x, targets)
        found = self.strata(x, targets)
        self.assertFalse([name for name in found[2] if name.startswith("1.")])  # constants
        expected = self.eager(model, x, targets, len(x))
        self.assert_bits(found, expected, skipped=[name for name in expected[2] if name.startswith("1.")])
        self.assert_bits(self.strata(x, targets, stages=3), found)

    def test_samples_may_be_joined_with_other_dimensions(self):
        class Joined(nn.Module):
            def __init__(self):
                super().__init__()
                self.dropout, self.last = nn.Dropout(0.5), nn.Linear(4, 5)

            def forward(self, x):
                rows = self.dropout(x.reshape(-1, 4)).reshape(-1, 3, 4)
                return self.last(rows.sum(1))

        x, targets = torch.randn(16, 3, 4), torch.randint(0, 5, (16,))
        self.export(Joined().train(), x)
        self.write(x, targets)
        whole = self.strata(x, targets, steps=3)
        self.assert_bits(self.strata(x, targets, steps=3, micro_batch=4), whole, tolerance=1e-5)
        self.assert_bits(self.strata(x, targets, steps=3, dp=2), whole, tolerance=1e-5)

    def test_a_layer_may_read_only_joined_samples(self):
        model = nn.Sequential(nn.Linear(12, 12), nn.Flatten(0), nn.Unflatten(0, (-1, 4)), nn.Linear(4, 4), nn.ReLU(),
                              nn.Flatten(0), nn.Unflatten(0, (-1, 12)), nn.Linear(12, 5))
        x, targets = torch.randn(16, 12), torch.randint(0, 5, (16,))
        self.export(model, x)
        self.write(x, targets)
        one = self.strata(x, targets, micro_batch=4)
        self.assert_bits(one, self.eager(model, x, targets, 4))
        self.assert_bits(self.strata(x, targets, micro_batch=4, stages=3), one)

    def test_a_layer_may_depend_on_the_number_of_samples_alone(self):
        class Token(nn.Module):
            def __init__(self):
                super().__init__()
                self.token = nn.Parameter(torch.randn(1, 1, 8))

            def forward(self, samples):
                return self.token.expand(samples, -1, -1)

        class WithToken(nn.Module):
            def __init__(self):
                super().__init__()
                self.token, self.embed, self.head = Token(), nn.Linear(4, 8), nn.Linear(8, 5)

            def forward(self, x):
                y = torch.cat([self.token(x.shape[0]), self.embed(x)], 1)
                return self.head(y[:, 0] * y.mean(1))

        model, x, targets = WithToken(), torch.randn(16, 3, 4), torch.randint(0, 5, (16,))
        self.export(model, x)
        self.write(x, targets)
        found = self.strata(x, targets)
        self.assertIn("token", found[3])
        self.assert_bits(found, self.eager(model, x, targets, len(x)))
        for more in ({"stages": 2}, {"tier": "host"}, {"tier": "disk", "recompute": True}):
            self.assert_bits(self.strata(x, targets, **more), found)

    def test_dropout_depends_on_the_sample_alone(self):
        model, x, targets = perceptron(0.5).train(), torch.randn(16, 12), torch.randint(0, 5, (16,))
        self.export(model, x)
        self.write(x, targets)
        expected = self.strata(x, targets, micro_batch=4)
        without = perceptron(0.0)
        without.load_state_dict(model.state_dict())
        self.assertNotEqual(expected[0][0], self.eager(without, x, targets, 4)[0][0])
        for more in ({"stages": 3}, {"stages": 2, "recompute": True}, {"tier": "host"}):
            self.assert_bits(self.strata(x, targets, micro_batch=4, **more), expected)
        self.assert_bits(self.strata(x, targets, micro_batch=2), expected, tolerance=1e-5)

    def test_two_uses_of_dropout_in_a_layer_draw_apart(self):
        class Difference(nn.Module):
            def __init__(self):
                super().__init__()
                self.first, self.second = nn.Dropout(0.5), nn.Dropout(0.5)

            def forward(self, x):
                return self.first(x) - self.second(x)

        model, x, targets = nn.Sequential(Difference(), nn.Linear(12, 5)), torch.randn(16, 12), torch.randint(0, 5, (16,))
        self.export(model.train(), x)
        self.write(x, targets)
        self.assertGreater(self.strata(x, targets)[1]["1.weight"].abs().max(), 0)

    def test_dropout_inside_attention_depends_on_the_sample_alone(self):
        x, targets = TOKENS[:, :-1], TOKENS[:, 1:]
        self.export(gpt2(attn_pdrop=0.3).train(), x)
        self.write(x, targets)
        expected = self.strata(x, targets, micro_batch=4, steps=4)
        for more in ({"stages": 3}, {"stages": 2, "recompute": True}):
            self.assert_bits(self.strata(x, targets, micro_batch=4, steps=4, **more), expected)
        self.assert_bits(self.strata(x, targets, micro_batch=2, steps=4), expected, tolerance=1e-5)

    def test_stochastic_depth_and_dropout_of_channels_depend_on_the_sample_alone(self):
        class Path(nn.Module):
            """As timm and torchvision write it."""

            def __init__(self, inside):
                super().__init__()
                self.inside = inside

            def forward(self, x):
                return x + self.inside(x) * x.new_empty((x.shape[0], 1)).bernoulli_(0.75).div_(0.75)

        model = nn.Sequential(nn.Linear(12, 32), Path(nn.Linear(32, 32)), nn.AlphaDropout(0.2),
                              Path(nn.Linear(32, 32)), nn.Unflatten(1, (4, 8)), nn.FeatureAlphaDropout(0.2), nn.Dropout1d(0.3),
                              nn.Flatten(), nn.Linear(32, 5)).train()
        x, targets = torch.randn(16, 12), torch.randint(0, 5, (16,))
        self.export(model, x)
        self.write(x, targets)
        whole = self.strata(x, targets, micro_batch=16)
        self.assertNotEqual(whole[0], self.eager(model.eval(), x, targets, 16)[0])
        parts = self.strata(x, targets, micro_batch=4)
        self.assertAlmostEqual(parts[0][0], whole[0][0], delta=1e-6)
        for more in ({"stages": 3}, {"stages": 4, "recompute": True}):
            self.assert_bits(self.strata(x, targets, micro_batch=4, **more), parts)

    def test_changes_in_place_become_new_values(self):
        class InPlace(nn.Module):
            def __init__(self):
                super().__init__()
                self.first, self.last = nn.Linear(12, 12), nn.Linear(12, 5)
                self.last.weight = nn.Parameter(torch.randn(12, 5).t())  # by columns

            def forward(self, x):
                y = self.first(x).view(-1, 3, 4)
                y.mul_(2)
                y.add_(x.view(-1, 3, 4))
                z = torch.sigmoid(y.flatten(1)) * 3
                z += 1
                return self.last(z)

        model, x, targets = InPlace(), torch.randn(16, 12), torch.randint(0, 5, (16,))
        self.export(model, x)
        self.write(x, targets)
        # A product with a weight by columns adds up in another order.
        self.assert_bits(self.strata(x, targets), self.eager(model, x, targets, len(x)), tolerance=1e-5)

    def test_writes_to_parts_become_new_values(self):
        class Parts(nn.Module):
            def __init__(self):
                super().__init__()
                self.first, self.last = nn.Linear(12, 12), nn.Linear(12, 5)

            def forward(self, x):
                y = self.first(x).view(-1, 3, 4)
                y[:, 1:, 0] += x[:, :2]
                y[:, 0] *= 2
                y[:, :, 2:][:, 1] = x[:, 4:6]
                mask = torch.zeros(12, 12)
                for number, rows in enumerate((slice(0, 3), slice(3, 12))):
                    for columns in (slice(0, 5), slice(5, -1)):
                        mask[rows, columns] = number + 1
                mask[7] = -1
                return self.last(y.flatten(1) @ mask)

        model, x, targets = Parts(), torch.randn(16, 12), torch.randint(0, 5, (16,))
        self.export(model, x)
        self.write(x, targets)
        alone = self.strata(x, targets)
        self.assert_bits(alone, self.eager(model, x, targets, len(x)))
        self.assert_bits(self.strata(x, targets, stages=2, recompute=True), alone)

    def test_borders_choose_the_layers(self):
        x, targets = TOKENS[:, :-1], TOKENS[:, 1:]
        self.export(Language(), x)
        self.write(x, targets)
        chosen = self.strata(x, targets)
        self.assertIn("blocks.0.0", chosen[3])
        blocks = self.strata(x, targets, borders=["blocks.0", "blocks.1", "blocks.2"])
        self.assertIn("blocks.1", blocks[3])
        self.assertNotIn("blocks.0.0", blocks[3])
        self.assert_bits(blocks, chosen)


if __name__ == "__main__":
    unittest.main()
