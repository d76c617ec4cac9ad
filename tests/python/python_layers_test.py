"""Compares pipelines with layers that run in Python with PyTorch alone, and meshes with one another."""

import os
import tempfile
import unittest
import unittest.mock
import warnings

from package import import_strata

strata = import_strata()

import torch  # noqa: E402
from torch import nn  # noqa: E402

SGD = {"kind": "sgd", "momentum": 0.0, "weight_decay": 0.0}
STEPS, BATCH, CHUNKS = 4, 12, 3


class Rounded(torch.autograd.Function):
    """Rounds, and passes three times the gradient on."""

    @staticmethod
    def forward(context, x):
        return (x * 4).round() / 4

    @staticmethod
    def backward(context, gradient):
        return gradient * 3


rounded = Rounded.apply  # bound to a name, as PyTorch's tutorials do


class Rounding(nn.Module):
    def __init__(self, width, apply=Rounded.apply):
        super().__init__()
        self.gain, self.apply_function = nn.Parameter(torch.full((width,), 1.25)), apply

    def forward(self, x):
        return self.apply_function(x * self.gain)


class RoundingByName(Rounding):
    def forward(self, x):
        return rounded(x * self.gain)


class RoundingByClass(Rounding):
    def forward(self, x):
        return Rounded.apply(x * self.gain)


class Branching(nn.Module):
    """Its control flow depends on values, and it returns a tuple of two values of other sizes."""

    def __init__(self, width):
        super().__init__()
        self.left, self.right = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x, *, scale):
        y = self.left(x) if x.sum() > 0 else self.right(x)
        return y * scale, x.flatten(0, 1)


class WithBranches(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.branching, self.last = nn.Linear(6, 16), Branching(8), nn.Linear(8, 4)

    def forward(self, x):
        y, flat = self.branching(self.first(x).view(-1, 2, 8), scale=0.5)
        return self.last(y + flat.view(-1, 2, 8)).mean(1)


def rounding_net():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), RoundingByName(8), nn.Linear(8, 8), RoundingByClass(8), nn.Linear(8, 4))


def branching_net():
    torch.manual_seed(2)
    return WithBranches()


def batches(width=6):
    random = torch.Generator().manual_seed(3)
    return [(torch.randn(BATCH, width, generator=random), torch.randint(0, 4, (BATCH,), generator=random)) for _ in range(STEPS)]


def trained(model, data, **options):
    """The bits of losses and weights."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with strata.Pipeline(model, optimizer=SGD, lr=0.1, chunks=CHUNKS, **options) as pipe:
            losses = [pipe.step(x, y)["loss_hex"] for x, y in data]
            return losses, {name: tensor.numpy().tobytes() for name, tensor in pipe.state_dict().items()}


class PythonLayersTest(unittest.TestCase):
    def assert_as_eager(self, make, data, micro_batches):
        eager, model = make(), make()
        optimizer = torch.optim.SGD(eager.parameters(), lr=0.1)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            pipe = strata.Pipeline(model, optimizer=SGD, lr=0.1, chunks=micro_batches, mesh={"pp": 2})
            for x, y in data:
                optimizer.zero_grad()
                losses = [nn.functional.cross_entropy(eager(part), targets, reduction="sum") / len(x)
                          for part, targets in zip(x.chunk(micro_batches), y.chunk(micro_batches))]
                sum(losses).backward()
                optimizer.step()
                self.assertAlmostEqual(pipe.step(x, y)["loss"], sum(loss.item() for loss in losses), delta=1e-6)
        state = pipe.state_dict()
        for name, parameter in eager.named_parameters():
            torch.testing.assert_close(state[name], parameter.detach(), atol=1e-6, rtol=1e-5, msg=name)

    def test_autograd_functions_keep_their_backward(self):
        self.assert_as_eager(rounding_net, batches(), 3)

    def test_control_flow_may_depend_on_values(self):
        self.assert_as_eager(branching_net, batches(), 3)

    def test_every_mesh_has_the_same_bits(self):
        for make in (rounding_net, branching_net):
            expected = trained(make(), batches())
            for options in ({"mesh": {"pp": 2}}, {"mesh": {"pp": 3}, "schedule": "gpipe"}, {"mesh": {"pp": 2}, "memory": {"recompute": "full"}},
                            {"mesh": {"pp": 3}, "schedule": "zb-h2"}, {"memory": {"weights": "host", "states": "host"}}):
                with self.subTest(make.__name__, options=options):
                    self.assertEqual(trained(make(), batches(), **options), expected)

    def test_random_numbers_do_not_depend_on_the_mesh(self):
        def make():
            torch.manual_seed(1)
            return nn.Sequential(nn.Linear(6, 8), nn.Sequential(Rounding(8), nn.Dropout(0.5)), nn.Sequential(Rounding(8), nn.Dropout(0.5)), nn.Linear(8, 4))

        names = {"python_layers": ("1", "2")}
        expected = trained(make(), batches(), **names)
        for options in ({"mesh": {"pp": 2}}, {"mesh": {"pp": 3}, "memory": {"recompute": "full"}}):
            self.assertEqual(trained(make(), batches(), **names, **options), expected)
        self.assertNotEqual(trained(make(), batches(), seed=2, **names), expected)
        pipe = strata.Pipeline(make(), **names)
        x, y = batches()[0]
        losses = {pipe.evaluate(x, y)["loss"] for _ in range(2)}
        self.assertAlmostEqual(losses.pop(), nn.functional.cross_entropy(make().eval()(x), y).item(), delta=1e-6)
        self.assertFalse(losses, "an evaluation draws")

    def test_masks_differ_by_step_sample_and_layer(self):
        masks = []

        class Masks(nn.Module):
            def forward(self, x):
                y = nn.functional.dropout(x, 0.5, self.training)
                masks.append((y != 0).tolist())
                return y

        model = nn.Sequential(nn.Linear(6, 32), Masks(), Masks(), nn.Linear(32, 4))
        for layer in (0, 3):
            nn.init.constant_(model[layer].weight, 0.5)
            nn.init.constant_(model[layer].bias, 1)
        x = torch.ones(4, 6)
        pipe = strata.Pipeline(model, python_layers=["1", "2"], chunks=2)
        pipe.step(x, torch.zeros(4, dtype=torch.long))
        masks.clear()
        for _ in range(8):
            pipe.step(x, torch.zeros(4, dtype=torch.long), lr=1e-9)
        self.assertEqual(len(masks), 8 * 2 * 2)
        for layer in (0, 1):  # the second layer's inputs have the first one's zeros
            seen = masks[layer::2]
            for index, mask in enumerate(seen):
                self.assertNotIn(mask, seen[:index])
        self.assertNotIn(masks[0], masks[1::2])

    def test_replicas_agree_within_rounding(self):
        losses, _ = trained(rounding_net(), batches())
        replicas, _ = trained(rounding_net(), batches(), mesh={"dp": 2, "zero": 3})
        for ours, theirs in zip(losses, replicas):
            self.assertAlmostEqual(float.fromhex(ours), float.fromhex(theirs), delta=1e-5)

    def test_weights_may_be_shared_with_other_layers(self):
        def make():
            torch.manual_seed(5)
            model = nn.Sequential(nn.Linear(6, 6), Rounding(6), nn.Linear(6, 6), nn.Sequential(Rounding(6), nn.Linear(6, 6)), nn.Linear(6, 4))
            model[3][1].weight = model[0].weight
            return model

        self.assert_as_eager(make, batches(), 2)

    def test_operators_of_ones_own(self):
        @torch.library.custom_op("strata_test::halved", mutates_args=())
        def halved(x: torch.Tensor) -> torch.Tensor:
            return x / 2

        halved.register_autograd(lambda context, gradient: gradient / 2)
        halved.register_fake(torch.empty_like)

        class Halving(nn.Module):
            def forward(self, x):
                return torch.ops.strata_test.halved(x)

        def make():
            torch.manual_seed(6)
            return nn.Sequential(nn.Linear(6, 8), Halving(), nn.Linear(8, 4))

        with self.assertRaisesRegex(strata.UserError, "python_layers"):
            strata.Pipeline(make()).step(*batches()[0])
        expected = trained(nn.Sequential(*[layer if index != 1 else Half() for index, layer in enumerate(make())]), batches())
        self.assertEqual(trained(make(), batches(), python_layers=["1"]), expected)

    def test_checkpointed_modules_train_as_others(self):
        class Checkpointed(nn.Module):
            def __init__(self, inner, reentrant):
                super().__init__()
                self.inner, self.reentrant = inner, reentrant

            def forward(self, x):
                return torch.utils.checkpoint.checkpoint(self.inner, x, use_reentrant=self.reentrant)

        def make(wrap):
            torch.manual_seed(7)
            return nn.Sequential(nn.Linear(6, 8), wrap(nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8))), nn.Linear(8, 4))

        losses, _ = trained(make(lambda inner: inner), batches())
        for reentrant in (False, True):
            self.assertEqual(trained(make(lambda inner, reentrant=reentrant: Checkpointed(inner, reentrant)), batches())[0], losses)

    def test_hooks_run_once(self):
        def make():
            torch.manual_seed(8)
            model = nn.Sequential(nn.Linear(6, 8), Rounding(8), nn.Linear(8, 4))
            model[1].register_forward_hook(lambda module, args, output: output * 2)
            model[1].register_forward_pre_hook(lambda module, args: (args[0] + 1,))
            return model

        self.assert_as_eager(make, batches(), 2)
        model = make()
        trained(model, batches())
        self.assertEqual((len(model[1]._forward_hooks), len(model[1]._forward_pre_hooks)), (1, 1))

    def test_plan_names_them_and_a_warning_says_why(self):
        with self.assertWarnsRegex(UserWarning, "'2' runs in Python.*backward of Rounded"):
            pipe = strata.Pipeline(rounding_net(), example=batches()[0])
        self.assertRegex(str(pipe.plan), r"python +2 layers \(2, 4\) hold the interpreter's lock for up to \d+ % of the computation")
        with strata.Pipeline(nn.Linear(6, 4), example=batches()[0]) as plain:
            self.assertNotIn("python", str(plain.plan))

    def test_what_cannot_be_a_layer_is_refused(self):
        class Counting(nn.Module):
            def forward(self, x):
                return x, 1

        class Changing(nn.Module):
            def forward(self, x):
                return x.relu_()

        x, y = batches()[0]
        class Clamping(nn.Linear):
            def forward(self, x):
                with torch.no_grad():
                    self.weight.clamp_(-1, 1)
                return super().forward(x)

        class Replacing(nn.Module):
            def __init__(self):
                super().__init__()
                self.register_buffer("count", torch.zeros(()))

            def forward(self, x):
                self.count = self.count + 1
                return x

        for module, name, reason in ((nn.BatchNorm1d(8), "1", "statistics"), (Replacing(), "1", "statistics"), (Clamping(8, 8), "1", "its weights"), (Counting(), "1", "returns int"), (Changing(), "1", "changes its input"),
                                     (nn.Identity(), "2", "no module '2'")):
            with self.subTest(reason), self.assertRaisesRegex(strata.UserError, reason):
                model = nn.Sequential(nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8)), module)
                state = {key: tensor.clone() for key, tensor in model.state_dict().items() if "running" in key or "count" in key}
                try:
                    strata.Pipeline(model, python_layers=[name]).step(x, y)
                finally:
                    for key, tensor in state.items():
                        self.assertTrue(torch.equal(model.state_dict()[key], tensor), key)
                    self.assertNotIn("forward", module.__dict__)

        patched = nn.Sequential(nn.Linear(6, 8), nn.Tanh())
        patched[1].forward = torch.relu
        with self.assertRaisesRegex(strata.UserError, "of its own object"):
            strata.Pipeline(patched, python_layers=["1"]).step(x, y)

        class Root(nn.Module):
            def __init__(self):
                super().__init__()
                self.linear = nn.Linear(6, 4)

            def forward(self, x):
                return Rounded.apply(self.linear(x))

        with self.assertRaisesRegex(strata.UserError, "itself.*submodule"):
            strata.Pipeline(Root()).step(x, y)

    def test_what_a_layer_raises_reaches_the_caller(self):
        class Failing(nn.Module):
            fails = False

            def forward(self, x):
                if Failing.fails:
                    raise LookupError("no such row")
                return x * 1

        pipe = strata.Pipeline(nn.Sequential(nn.Linear(6, 4), Failing()), python_layers=["1"], mesh={"pp": 2}, chunks=2)
        pipe.step(*batches()[0])
        Failing.fails = True
        with self.assertRaisesRegex(Exception, "no such row"):
            pipe.step(*batches()[0])

    def test_the_users_model_is_as_before(self):
        model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), Rounding(8), nn.Linear(8, 4)).eval()
        state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        torch.manual_seed(9)
        expected = torch.rand(3)
        torch.manual_seed(9)
        with warnings.catch_warnings(), tempfile.TemporaryDirectory() as cache, unittest.mock.patch.dict(os.environ, XDG_CACHE_HOME=cache):
            warnings.simplefilter("ignore")
            strata.Pipeline(model).step(*batches()[0])  # measures the layers, because the cache is empty
        self.assertTrue(torch.equal(torch.rand(3), expected))
        for name, tensor in model.state_dict().items():
            self.assertTrue(torch.equal(tensor, state[name]), name)
        self.assertFalse(model.training)
        self.assertNotIn("forward", model[2].__dict__)
        self.assertNotIn("apply", torch.autograd.function._SingleLevelFunction.__dict__)
        self.assertTrue(torch.equal(Rounded.apply(torch.tensor([0.3])), torch.tensor([0.25])))


class Half(nn.Module):
    def forward(self, x):
        return x / 2


if __name__ == "__main__":
    unittest.main()
