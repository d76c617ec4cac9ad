"""Compares strata.Pipeline with training by PyTorch alone, and meshes with one another."""

import os
import pathlib
import subprocess
import sys
import tempfile
import textwrap
import unittest

from package import import_strata

strata = import_strata()

import torch  # noqa: E402
from torch import nn  # noqa: E402

SGD = {"kind": "sgd", "momentum": 0.0, "weight_decay": 0.0}
STEPS, BATCH = 6, 12


def network():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(6, 16), nn.GELU(), nn.Linear(16, 16), nn.LayerNorm(16), nn.GELU(), nn.Linear(16, 4))


def batches(seed=3):
    random = torch.Generator().manual_seed(seed)
    return [(torch.randn(BATCH, 6, generator=random), torch.randint(0, 4, (BATCH,), generator=random)) for _ in range(STEPS)]


def losses_of(model, data, **options):
    with strata.Pipeline(model, **options) as pipe:
        return [pipe.step(x, y)["loss_hex"] for x, y in data]


class PipelineTest(unittest.TestCase):
    def test_trains_as_eager_mode_does(self):
        losses = {
            "cross_entropy": (network, nn.CrossEntropyLoss(), batches()),
            "smoothed": (network, nn.CrossEntropyLoss(label_smoothing=0.1), batches()),
            "squared": (network, nn.MSELoss(), [(x, torch.randn(BATCH, 4, generator=torch.Generator().manual_seed(9))) for x, _ in batches()]),
            "binary": (network, nn.BCEWithLogitsLoss(), [(x, (x[:, :4] > 0).float()) for x, _ in batches()]),
        }
        for name, (make, loss, data) in losses.items():
            with self.subTest(name):
                eager, model = make(), make()
                optimizer = torch.optim.SGD(eager.parameters(), lr=0.1)
                pipe = strata.Pipeline(model, loss=loss, optimizer=SGD, lr=0.1)
                for step, (x, y) in enumerate(data):
                    expected = loss(eager(x), y)
                    found = pipe.step(x, y)
                    self.assertAlmostEqual(found["loss"], expected.item(), delta=1e-6 if step == 0 else 1e-5)
                    optimizer.zero_grad()
                    expected.backward()
                    optimizer.step()
                model.load_state_dict(pipe.state_dict())
                for ours, theirs in zip(model.parameters(), eager.parameters()):
                    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-4)

    def test_muon_moves_hidden_matrices_as_its_formulas_say(self):
        """The formulas in fp64: https://arxiv.org/abs/2502.16982, without weight decay."""
        model, eager = network(), network().double()
        rate, momentum = 0.02, 0.95
        hidden = {"0.weight", "2.weight"}  # the third matrix scores
        adam = torch.optim.AdamW([p for name, p in eager.named_parameters() if name not in hidden], lr=rate, betas=(0.9, 0.95), weight_decay=0.0)
        velocity = {name: torch.zeros_like(p) for name, p in eager.named_parameters() if name in hidden}
        pipe = strata.Pipeline(model, optimizer={"kind": "muon", "momentum": momentum}, lr=rate, mesh={"pp": 2, "dp": 2, "zero": 2}, chunks=2)
        for x, y in batches():
            loss = nn.functional.cross_entropy(eager(x.double()), y)
            self.assertAlmostEqual(pipe.step(x, y)["loss"], loss.item(), delta=1e-4)
            eager.zero_grad()
            loss.backward()
            adam.step()
            for name, parameter in eager.named_parameters():
                if name not in hidden:
                    continue
                velocity[name] = momentum * velocity[name] + parameter.grad
                u = parameter.grad + momentum * velocity[name]
                transposed = u.shape[0] > u.shape[1]
                u = u.T if transposed else u
                u = u / u.norm()
                for _ in range(5):
                    square = u @ u.T
                    u = 3.4445 * u + (-4.7750 * square + 2.0315 * square @ square) @ u
                u = u.T if transposed else u
                with torch.no_grad():
                    parameter -= rate * 0.2 * max(u.shape) ** 0.5 * u
        state = pipe.state_dict()
        for name, parameter in eager.named_parameters():
            torch.testing.assert_close(state[name].double(), parameter.detach(), atol=2e-4, rtol=1e-3, msg=name)

    def test_lamb_moves_matrices_by_their_norms(self):
        """Algorithm 2 of https://arxiv.org/abs/1904.00962 in fp64; biases have the trust ratio 1 and no decay."""
        rate, beta1, beta2, decay, largest = 0.02, 0.9, 0.99, 0.1, 0.2
        model, eager = network(), network().double()
        means = {name: torch.zeros_like(p) for name, p in eager.named_parameters()}
        squares = {name: torch.zeros_like(p) for name, p in eager.named_parameters()}
        options = {"kind": "lamb", "beta1": beta1, "beta2": beta2, "epsilon": 1e-6, "weight_decay": decay, "max_coeff": largest}
        pipe = strata.Pipeline(model, optimizer=options, lr=rate, mesh={"pp": 2, "dp": 2, "zero": 2}, chunks=2)
        ratios = []
        for step, (x, y) in enumerate(batches(), 1):
            loss = nn.functional.cross_entropy(eager(x.double()), y)
            self.assertAlmostEqual(pipe.step(x, y)["loss"], loss.item(), delta=1e-5)
            eager.zero_grad()
            loss.backward()
            for name, parameter in eager.named_parameters():
                matrix = parameter.dim() == 2
                means[name] = beta1 * means[name] + (1 - beta1) * parameter.grad
                squares[name] = beta2 * squares[name] + (1 - beta2) * parameter.grad ** 2
                u = means[name] / (1 - beta1 ** step) / ((squares[name] / (1 - beta2 ** step)).sqrt() + 1e-6)
                with torch.no_grad():
                    if matrix:
                        u += decay * parameter
                        ratios.append((parameter.norm() / u.norm()).item())
                    parameter -= rate * (min(ratios[-1], largest) if matrix else 1) * u
        self.assertTrue(min(ratios) < largest < max(ratios), ratios)
        state = pipe.state_dict()
        for name, parameter in eager.named_parameters():
            torch.testing.assert_close(state[name].double(), parameter.detach(), atol=1e-5, rtol=1e-4, msg=name)

    def test_onebit_adam_sends_signs_as_its_formulas_say(self):
        # A part of a layer is one of its weights; with two shards, half of one.
        self.expect_formulas_of_onebit_adam({"dp": 2}, part=64 * 32)

    def test_groups_that_share_shards_send_signs_as_formulas_say(self):
        for zero in (1, 2, 3):
            with self.subTest(zero):
                self.expect_formulas_of_onebit_adam({"dp": 4, "zero": zero, "shard_ranks": 2}, part=64 * 32 // 2)

    def expect_formulas_of_onebit_adam(self, mesh, part):
        """Algorithm 1 of https://arxiv.org/abs/2102.02888 in fp64, on momenta divided by the roots of their variances, of two replicas."""
        class Blocks(nn.Module):
            def __init__(self):
                super().__init__()
                torch.manual_seed(5)
                self.first, self.second = (nn.Sequential(nn.Linear(32, 64, bias=False), nn.Tanh(), nn.Linear(64, 32, bias=False)) for _ in range(2))

            def forward(self, x):
                return self.second(x + self.first(x))

        freeze, rate, beta1, beta2, replicas = 4, 0.01, 0.9, 0.99, 2
        model, eager = Blocks(), Blocks().double()
        options = {"kind": "onebit-adam", "freeze_step": freeze, "beta1": beta1, "beta2": beta2}
        pipe = strata.Pipeline(model, optimizer=options, lr=rate, mesh=mesh, layers=["first", "second"])
        parameters = list(eager.parameters())
        mean, square, server = ([torch.zeros_like(p) for p in parameters] for _ in range(3))
        worker = [[torch.zeros_like(p) for p in parameters] for _ in range(replicas)]

        def sent(x):
            """What a message of one bit an element says; leaves the rest in x."""
            parts = x.view(-1, part)
            message = (torch.where(parts < 0, -1.0, 1.0) * parts.abs().mean(1, keepdim=True)).view_as(x)
            x -= message
            return message

        random = torch.Generator().manual_seed(6)
        for step in range(1, 13):
            x, y = torch.randn(16, 32, generator=random), torch.randint(0, 32, (16,), generator=random)
            gradients = []
            for rows in (slice(0, 8), slice(8, 16)):
                loss = nn.functional.cross_entropy(eager(x[rows].double()), y[rows], reduction="sum") / 16
                gradients.append(torch.autograd.grad(loss, parameters))
            whole = nn.functional.cross_entropy(eager(x.double()), y)
            self.assertAlmostEqual(pipe.step(x, y)["loss"], whole.item(), delta=1e-5 if step <= freeze else 2e-3)
            with torch.no_grad():
                for i, parameter in enumerate(parameters):
                    if step <= freeze:
                        gradient = gradients[0][i] + gradients[1][i]
                        mean[i].mul_(beta1).add_(gradient, alpha=1 - beta1)
                        square[i].mul_(beta2).add_(gradient ** 2, alpha=1 - beta2)
                        root = (square[i] / (1 - beta2 ** step)).sqrt() + 1e-8
                        direction = mean[i] / root
                    else:
                        root = (square[i] / (1 - beta2 ** freeze)).sqrt() + 1e-8
                        most = (1 - beta1) / (1 - beta2) ** 0.5
                        for replica in range(replicas):
                            by_gradient = (1 - beta1) * replicas * gradients[replica][i] / root
                            worker[replica][i] += beta1 * mean[i] / root + by_gradient.clamp(-most, most)
                            server[i] += sent(worker[replica][i]) / replicas
                        direction = sent(server[i])
                        mean[i] = direction * root
                    parameter -= rate / (1 - beta1 ** step) * direction
        state = pipe.state_dict()
        for name, parameter in eager.named_parameters():
            # In fp32 a few elements near zero have the other sign.
            close = (state[name].double() - parameter).abs() < 1e-4
            self.assertGreater(close.double().mean().item(), 0.98, name)

    def test_every_mesh_has_the_same_bits(self):
        expected = losses_of(network(), batches(), chunks=4)
        for options in ({"mesh": {"pp": 2}}, {"mesh": {"pp": 3}, "schedule": "gpipe"}, {"mesh": {"pp": 2, "virtual_stages": 2}, "schedule": "interleaved"},
                        {"mesh": {"pp": 2}, "memory": {"recompute": "full"}}, {"memory": {"states": "host", "weights": "host"}}):
            with self.subTest(options):
                self.assertEqual(losses_of(network(), batches(), chunks=4, **options), expected)

    def test_replicas_agree_within_rounding(self):
        alone = [float.fromhex(loss) for loss in losses_of(network(), batches(), chunks=2)]
        replicas = [float.fromhex(loss) for loss in losses_of(network(), batches(), chunks=2, mesh={"dp": 2, "zero": 3})]
        for ours, theirs in zip(replicas, alone):
            self.assertAlmostEqual(ours, theirs, delta=1e-5)

    def test_state_dict_is_the_models(self):
        class Tied(nn.Module):
            def __init__(self):
                super().__init__()
                self.embed, self.norm, self.head = nn.Embedding(5, 8), nn.BatchNorm1d(8), nn.Linear(8, 5, bias=False)
                self.head.weight = self.embed.weight
                self.frozen = nn.Parameter(torch.ones(8), requires_grad=False)

            def forward(self, x):
                return self.head(self.norm(self.embed(x) * self.frozen))

        torch.manual_seed(4)
        model, x = Tied(), torch.randint(0, 5, (BATCH,))
        before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        pipe = strata.Pipeline(model, mesh={"pp": 2}, chunks=2)
        for _ in range(2):
            pipe.step(x, x)
        state = pipe.state_dict()
        self.assertEqual(state.keys(), before.keys())
        self.assertTrue(torch.equal(state["embed.weight"], state["head.weight"]))
        self.assertTrue(torch.equal(state["frozen"], before["frozen"]))
        self.assertFalse(torch.equal(state["norm.running_mean"], before["norm.running_mean"]))
        self.assertFalse(torch.equal(state["embed.weight"], before["embed.weight"]))
        for name, tensor in model.state_dict().items():
            self.assertTrue(torch.equal(tensor, before[name]), "the model itself has changed")
        model.load_state_dict(state)
        model.eval()
        with torch.no_grad():
            expected = nn.functional.cross_entropy(model(x), x).item()
        self.assertAlmostEqual(pipe.evaluate(x, x)["loss"], expected, delta=1e-5)

    def test_evaluates_without_learning(self):
        model, data = nn.Sequential(network(), nn.Dropout(0.5)), batches()
        pipe = strata.Pipeline(model, mesh={"pp": 2}, chunks=3)
        x, y = data[0]
        first = pipe.evaluate(x, y)
        model.eval()
        with torch.no_grad():
            logits = model(x)
        self.assertAlmostEqual(first["loss"], nn.functional.cross_entropy(logits, y).item(), delta=1e-6)
        self.assertAlmostEqual(first["accuracy"], (logits.argmax(1) == y).float().mean().item(), delta=1e-6)
        both = pipe.evaluate(data[:2])
        self.assertAlmostEqual(both["loss"], (first["loss"] + pipe.evaluate(*data[1])["loss"]) / 2, delta=1e-6)
        self.assertEqual(pipe.evaluate(x, y), first)

    def test_continues_from_its_checkpoint(self):
        data = batches()
        whole = losses_of(network(), data, chunks=2)
        with tempfile.TemporaryDirectory() as folder:
            with strata.Pipeline(network(), mesh={"pp": 2}, chunks=2) as pipe:
                for x, y in data[:3]:
                    pipe.step(x, y)
                saved = pipe.save(folder)
            from safetensors.torch import load_file

            files = [load_file(path) for path in pathlib.Path(saved).glob("*.safetensors") if "optimizer" not in path.name]
            self.assertIn("0.weight", {name for tensors in files for name in tensors})
            self.assertEqual(losses_of(network(), data[3:], chunks=2, resume=folder), whole[3:])

    def test_loads_weights_of_another_pipeline(self):
        torch.manual_seed(8)
        x, y = batches()[0]
        other = strata.Pipeline(nn.Sequential(*[nn.Linear(6, 6), nn.Linear(6, 4)]), chunks=2)
        same = strata.Pipeline(nn.Sequential(*[nn.Linear(6, 6), nn.Linear(6, 4)]), chunks=2, mesh={"pp": 2}, example=(x, y))
        other.step(x, y)
        same.load_state_dict(other.state_dict())
        self.assertEqual(same.evaluate(x, y), other.evaluate(x, y))
        with self.assertRaisesRegex(strata.UserError, "no weight"):
            same.load_state_dict({})
        with self.assertRaisesRegex(strata.UserError, "no weight 'other'"):
            same.load_state_dict({**other.state_dict(), "other": torch.zeros(1)})

    def test_states_that_the_pipeline_cannot_have_are_refused(self):
        model = network()
        model[0].requires_grad_(False)
        pipe = strata.Pipeline(model, example=batches()[0])
        state = pipe.state_dict()
        pipe.load_state_dict(state)
        with self.assertRaisesRegex(strata.UserError, "'0.weight' is not trained"):
            pipe.load_state_dict({**state, "0.weight": torch.ones(16, 6)})
        with self.assertRaisesRegex(strata.UserError, "call step"):
            strata.Pipeline(network(), resume="some folder").state_dict()

    def test_model_remains_after_the_last_step(self):
        data = batches()
        pipe = strata.Pipeline(network(), mesh={"pp": 2}, chunks=2, overrides={"train.steps": 2, "train.decay": "cosine"})
        for x, y in data[:2]:
            pipe.step(x, y)
        with self.assertRaisesRegex(strata.UserError, "all 2 steps"):
            pipe.step(*data[2])
        self.assertEqual(pipe.steps_done, 2)
        self.assertFalse(torch.equal(pipe.state_dict()["0.weight"], network().state_dict()["0.weight"]))
        self.assertGreater(pipe.evaluate(*data[2])["loss"], 0)
        self.assertIn("iframe", pipe.report()._repr_html_())

    def test_second_thread_is_refused(self):
        import threading

        x, y = torch.randn(512, 6), torch.randint(0, 4, (512,))
        pipe = strata.Pipeline(network(), chunks=512, example=(x, y))
        refusals, running = [], threading.Event()

        def other():
            running.wait()
            try:
                for _ in range(50):
                    pipe.evaluate(x, y)
            except strata.UserError as error:
                refusals.append(error)

        thread = threading.Thread(target=other)
        thread.start()
        running.set()
        for _ in range(50):
            try:
                pipe.step(x, y)
            except strata.UserError as error:
                refusals.append(error)
        thread.join()
        self.assertTrue(refusals)
        self.assertRegex(str(refusals[0]), "another thread")
        self.assertIsNotNone(pipe.step(x, y))

    def test_learning_rate_of_a_step(self):
        data = batches()
        self.assertEqual(losses_of(network(), data, lr=0.05), [p for p in self.steps_with_rate(network(), data, 0.05)])

    def steps_with_rate(self, model, data, rate):
        with strata.Pipeline(model, lr=123.0) as pipe:
            for x, y in data:
                record = pipe.step(x, y, lr=rate)
                self.assertEqual(record["learning_rate"], rate)
                yield record["loss_hex"]

    def test_model_with_two_inputs(self):
        class Sum(nn.Module):
            def __init__(self):
                super().__init__()
                self.left, self.right = nn.Linear(3, 4), nn.Linear(2, 4)

            def forward(self, a, b):
                return self.left(a) + self.right(b)

        model, a, b, y = Sum(), torch.randn(8, 3), torch.randn(8, 2), torch.randint(0, 4, (8,))
        expected = nn.functional.cross_entropy(model(a, b), y).item()
        self.assertAlmostEqual(strata.Pipeline(model).step((a, b), y)["loss"], expected, delta=1e-6)

    def test_plan_and_report_are_shown(self):
        x, y = batches()[0]
        with self.assertRaisesRegex(strata.UserError, "call step"):
            strata.Pipeline(network()).plan  # noqa: B018
        pipe = strata.Pipeline(network(), mesh={"pp": 2}, chunks=4, example=(x, y))
        self.assertRegex(repr(pipe.plan), r"1f1b · 2 ranks")
        self.assertEqual(len(pipe.plan.json["ranks"]), 2)
        self.assertIn("iframe", pipe.plan._repr_html_())
        self.assertIn("micro_batch: 3", pipe.recipe)
        for _ in range(3):
            pipe.step(x, y)
        with tempfile.TemporaryDirectory() as folder:
            page = pipe.report(pathlib.Path(folder) / "report.html")
            self.assertIn("Sequential.pt2", page.html)
            self.assertEqual(page.html, (pathlib.Path(folder) / "report.html").read_text())
        self.assertIn("iframe", pipe.report()._repr_html_())
        self.assertEqual(pipe.steps_done, 3)

    def test_what_does_not_fit_is_refused_and_the_pipeline_goes_on(self):
        x, y = batches()[0]
        for options in ({"loss": "hinge"}, {"loss": nn.CrossEntropyLoss(weight=torch.ones(4))}, {"loss": nn.MSELoss(reduction="sum")}, {"chunks": 0}):
            with self.assertRaises(strata.UserError, msg=options):
                strata.Pipeline(network(), **options)
        with self.assertRaisesRegex(strata.UserError, "unknown field 'mesh.pq'"):
            strata.Pipeline(network(), mesh={"pq": 2}).step(x, y)
        pipe = strata.Pipeline(network(), chunks=2)
        pipe.step(x, y)
        for bad_x, bad_y, message in ((x.double(), y, "does not fit"), (x[:, :5], y, "does not fit"), (x, y + 10, "none of the model's loss"),
                                      (x.repeat(2, 1), y.repeat(2), "larger than the plan's"), (x, y[:4], "different numbers of samples"),
                                      (x, y * 0 - 100, "no target counts"), (x, [1, 2], "has tensors, not list"), (x, y[0], "begins with the samples")):
            with self.assertRaisesRegex(strata.UserError, message) as refused:
                pipe.step(bad_x, bad_y)
            self.assertIsInstance(refused.exception, ValueError)
        self.assertEqual(pipe.step(x, y)["step"], 2)
        self.assertEqual(pipe.step(x[:5], y[:5])["samples_seen"], 2 * BATCH + 5)
        pipe.close()
        with self.assertRaisesRegex(strata.UserError, "close"):
            pipe.step(x, y)

    def test_pipelines_are_independent(self):
        data = batches()
        expected = losses_of(network(), data, chunks=2)
        first, second = strata.Pipeline(network(), chunks=2, mesh={"pp": 2}), strata.Pipeline(network(), chunks=2)
        for step, (x, y) in enumerate(data):
            self.assertEqual([pipe.step(x, y)["loss_hex"] for pipe in (first, second)], [expected[step]] * 2)

    SCRIPT = textwrap.dedent("""
        import sys
        sys.path.insert(0, {tests!r})
        from pipeline_test import batches, network, strata
        model = network()
        {change}
        pipe = strata.Pipeline(model, mesh={{"pp": 2}}, chunks=4)
        for x, y in batches():
            record = pipe.step(x, y)
            if record:
                print(record["loss_hex"], flush=True)
    """)

    TORCHRUN = ("-m", "torch.distributed.run", "--nproc-per-node=2", "--rdzv-backend=c10d", "--rdzv-endpoint=127.0.0.1:0")

    def run_script(self, *launcher, change=""):
        with tempfile.TemporaryDirectory() as folder:
            script = pathlib.Path(folder) / "script.py"
            script.write_text(self.SCRIPT.format(tests=str(pathlib.Path(__file__).parent), change=change))
            done = subprocess.run([sys.executable, *launcher, str(script)], capture_output=True, text=True, timeout=300, env=os.environ)
        return done.stdout.split(), done.stderr

    def test_interpreter_ends_with_an_open_pipeline(self):
        losses, errors = self.run_script()
        self.assertEqual(losses, losses_of(network(), batches(), chunks=4), errors)

    def test_processes_of_torchrun_are_the_ranks(self):
        losses, errors = self.run_script(*self.TORCHRUN)
        self.assertEqual(losses, losses_of(network(), batches(), chunks=4), errors)

    def test_processes_with_other_weights_are_refused(self):
        losses, errors = self.run_script(*self.TORCHRUN, change="import os; strata.pipeline.torch.nn.init.constant_(model[0].weight, int(os.environ['RANK']))")
        self.assertEqual(losses, [])
        self.assertIn("the processes differ in their recipe", errors)


if __name__ == "__main__":
    unittest.main()
