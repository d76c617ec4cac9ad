"""Compares strata.GPipe with the plain sequence, micro-batch by micro-batch, by PyTorch alone."""

import copy
import gc
import pickle
import threading
import unittest
import weakref

from package import import_strata

strata = import_strata()

import torch  # noqa: E402
from torch import nn  # noqa: E402

from strata.gpipe import GPipe, is_checkpointing, is_recomputing  # noqa: E402
from strata.gpipe.balance import balance_by_size, balance_by_time, blockpartition  # noqa: E402
from strata.gpipe.skip import pop, skippable, stash  # noqa: E402

CHECKPOINTS = ("always", "except_last", "never")
BALANCES = ([4], [1, 3], [2, 2], [1, 1, 1, 1])


def network():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 8), nn.Linear(8, 3))


def cpus(balance):
    return ["cpu"] * len(balance)


def gradients(module):
    return [None if parameter.grad is None else parameter.grad.clone() for parameter in module.parameters()]


def equal(first, second):
    return len(first) == len(second) and all((a is None and b is None) or torch.equal(a, b) for a, b in zip(first, second))


class GPipeTest(unittest.TestCase):
    def test_output_and_gradients_have_the_bits_of_the_sequence_run_by_micro_batches(self):
        x, y = torch.randn(10, 6), torch.randn(10, 3)
        for chunks in (1, 3, 4, 20):
            plain, plain_x = network(), x.clone().requires_grad_()
            outputs = [plain(part) for part in plain_x.chunk(chunks)]
            output = torch.cat(outputs)
            leaf = output.detach().requires_grad_()
            (leaf - y).square().mean().backward()
            for part, gradient in zip(outputs, leaf.grad.chunk(chunks)):
                part.backward(gradient)
            for balance in BALANCES:
                for checkpoint in CHECKPOINTS:
                    with self.subTest(chunks=chunks, balance=balance, checkpoint=checkpoint):
                        pipe, pipe_x = GPipe(network(), balance, devices=cpus(balance), chunks=chunks, checkpoint=checkpoint), x.clone().requires_grad_()
                        made = pipe(pipe_x)
                        (made - y).square().mean().backward()
                        self.assertTrue(torch.equal(made, output))
                        self.assertTrue(equal(gradients(pipe), gradients(plain)))
                        self.assertTrue(torch.equal(pipe_x.grad, plain_x.grad))

    def test_random_numbers_depend_on_neither_balance_nor_recomputation(self):
        def network_with_dropout():
            torch.manual_seed(1)
            return nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.3), nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.3)), nn.Dropout(0.3))

        x, found = torch.randn(12, 6), []
        for balance in BALANCES:
            for checkpoint in CHECKPOINTS:
                pipe = GPipe(network_with_dropout(), balance, devices=cpus(balance), chunks=4, checkpoint=checkpoint)
                for _ in range(2):  # in the second step it is known which partitions draw
                    pipe.zero_grad()
                    torch.manual_seed(7)
                    output = pipe(x)
                    output.square().sum().backward()
                    found.append([output, *gradients(pipe)])
        for other in found[1:]:
            self.assertTrue(equal(found[0], other))
        rows = found[0][0].detach().eq(0)
        self.assertFalse(torch.equal(rows[:3], rows[3:6]), "two micro-batches have one mask")
        torch.manual_seed(8)
        self.assertFalse(torch.equal(pipe(x), found[0][0]), "the seed has no effect")

    def test_steps_draw_different_numbers_after_attention(self):
        class Attention(nn.Module):
            def forward(self, x):
                return nn.functional.scaled_dot_product_attention(x, x, x)

        pipe = GPipe(nn.Sequential(Attention(), nn.Dropout(0.5)), [1, 1], devices=["cpu"] * 2)
        x = torch.ones(2, 1, 20, 8)
        self.assertFalse(torch.equal(pipe(x), pipe(x)))

    def test_dropout_may_begin_after_the_first_step(self):
        pipe = GPipe(nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.0), nn.Linear(4, 4, bias=False)), [3], devices=["cpu"], checkpoint="always")
        x = torch.randn(8, 4)
        pipe(x)
        pipe[1].p = 0.5
        output = pipe(x).sum()
        output.backward()
        # The output is linear in the last weight, if the recomputation has the masks of the forward.
        torch.testing.assert_close((pipe[2].weight.grad * pipe[2].weight).sum(), output)

    def test_change_of_the_input_in_place_is_refused_where_it_would_be_repeated(self):
        class Double(nn.Module):
            def forward(self, x):
                return x.mul_(2)

        layers = nn.Sequential(Double(), nn.Linear(3, 1))
        with self.assertRaisesRegex(RuntimeError, "changed the input of its partition in place"):
            GPipe(layers, [2], devices=["cpu"], checkpoint="always")(torch.ones(2, 3))
        pipe = GPipe(layers, [2], devices=["cpu"], checkpoint="never")
        pipe(torch.ones(2, 3)).sum().backward()
        self.assertEqual(pipe[1].weight.grad.sum().item(), 12)

    def test_autocast_of_the_caller_holds(self):
        for checkpoint in CHECKPOINTS:
            pipe, plain, x = GPipe(network(), [2, 2], devices=["cpu"] * 2, checkpoint=checkpoint), network(), torch.randn(4, 6)
            with torch.autocast("cpu", dtype=torch.bfloat16):
                output, expected = pipe(x), plain(x)
            self.assertEqual(output.dtype, torch.bfloat16)
            self.assertTrue(torch.equal(output, expected))
            output.sum().backward()
            expected.sum().backward()
            self.assertTrue(equal(gradients(pipe), gradients(plain)))

    def test_complex_values_have_gradients(self):
        class Complex(nn.Module):
            def forward(self, x):
                return torch.complex(x, x)

        class Real(nn.Module):
            def forward(self, x):
                return x.real + x.imag

        for checkpoint in CHECKPOINTS:
            pipe = GPipe(nn.Sequential(nn.Linear(3, 3), Complex(), Real(), nn.Linear(3, 1)), [2, 2], devices=["cpu"] * 2, chunks=2, checkpoint=checkpoint)
            pipe(torch.ones(4, 3)).sum().backward()
            self.assertIsNotNone(pipe[0].weight.grad)

    def test_inputs_of_different_samples_and_gpus_are_refused(self):
        pipe = GPipe(nn.Sequential(nn.Identity()), [1], devices=["cpu"], chunks=6)
        for inputs in ((torch.ones(9, 2), torch.ones(4, 2)), (torch.ones(8), torch.ones(1)), torch.tensor(1.0)):
            with self.assertRaisesRegex(ValueError, "first dimension"):
                pipe(inputs)
        with self.assertRaisesRegex(ValueError, "no GPU has run"):
            GPipe(nn.Sequential(nn.Identity()), [1], devices=["cuda:0"])

    def test_layers_draw_different_numbers(self):
        pipe = GPipe(nn.Sequential(nn.Dropout(0.5), nn.Sequential(nn.Dropout(0.5))), [1, 1], devices=["cpu"] * 2, chunks=2)
        zeros = pipe(torch.ones(200, 10)).eq(0).float().mean().item()
        self.assertAlmostEqual(zeros, 0.75, delta=0.05)

    def test_layers_may_change_their_input_in_place(self):
        def in_place():
            torch.manual_seed(1)
            return nn.Sequential(nn.Linear(6, 8), nn.ReLU(inplace=True), nn.Linear(8, 3))

        x, plain = torch.randn(8, 6), in_place()
        for part in x.chunk(2):
            plain(part).sum().backward()
        pipe = GPipe(in_place(), [1, 2], devices=["cpu"] * 2, chunks=2, checkpoint="never")
        pipe(x).sum().backward()
        self.assertTrue(equal(gradients(pipe), gradients(plain)))

    def test_operators_without_generator_are_recomputed_with_the_same_numbers(self):
        class Noise(nn.Module):
            def forward(self, x):
                return x * torch.rand_like(x) * torch.nn.functional.rrelu(x, training=True) * torch.nn.functional.alpha_dropout(x, 0.2, True)

        x = torch.randn(6, 4)
        pairs = []
        for checkpoint in CHECKPOINTS:
            pipe = GPipe(nn.Sequential(nn.Linear(4, 4), Noise()), [1, 1], devices=["cpu"] * 2, chunks=3, checkpoint=checkpoint)
            with torch.no_grad():
                pipe[0].weight.copy_(torch.eye(4))
                pipe[0].bias.zero_()
            torch.manual_seed(3)
            pipe(x).sum().backward()
            pairs.append(gradients(pipe))
        self.assertTrue(equal(pairs[0], pairs[1]) and equal(pairs[0], pairs[2]))

    def test_skips_between_any_partitions_have_the_gradients_of_the_sequence(self):
        @skippable(stash=["early"])
        class Early(nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = nn.Linear(4, 4)

            def forward(self, x):
                x = self.layer(x)
                yield stash("early", x * 2)
                return x

        @skippable(pop=["early"])
        class Late(nn.Module):
            def forward(self, x):
                early = yield pop("early")
                return x * early

        def skipping():
            torch.manual_seed(2)
            return nn.Sequential(Early(), nn.Linear(4, 4), nn.Tanh(), Late())

        x = torch.randn(8, 4)
        plain = skipping()
        for part in x.chunk(4):
            plain(part).sum().backward()
        for balance in BALANCES:
            for checkpoint in CHECKPOINTS:
                with self.subTest(balance=balance, checkpoint=checkpoint):
                    pipe = GPipe(skipping(), balance, devices=cpus(balance), chunks=4, checkpoint=checkpoint)
                    pipe(x).sum().backward()
                    self.assertTrue(equal(gradients(pipe), gradients(plain)))

    def test_deferred_batch_norm_has_the_statistics_of_the_whole_mini_batch(self):
        x = torch.randn(10, 3, 4) * 3 + 5
        for momentum in (0.1, None):
            for checkpoint in CHECKPOINTS:
                whole = nn.BatchNorm1d(3, momentum=momentum)
                pipe = GPipe(nn.Sequential(copy.deepcopy(whole)), [1], devices=["cpu"], chunks=4, checkpoint=checkpoint, deferred_batch_norm=True)
                for _ in range(2):
                    whole(x)
                    pipe(x).sum().backward()
                torch.testing.assert_close(pipe[0].running_mean, whole.running_mean)
                torch.testing.assert_close(pipe[0].running_var, whole.running_var)
                self.assertEqual(pipe[0].num_batches_tracked, whole.num_batches_tracked)
        few = GPipe(nn.Sequential(nn.BatchNorm1d(3)), [1], devices=["cpu"], chunks=8, deferred_batch_norm=True)
        few(x[:3])
        self.assertEqual(few[0].num_batches_tracked, 1, "fewer micro-batches than chunks")
        self.assertEqual(few.state_dict().keys(), GPipe(nn.Sequential(nn.BatchNorm1d(3)), [1], devices=["cpu"]).state_dict().keys())

    def test_trains_as_the_sequence_does(self):
        x, y = torch.randn(16, 6), torch.randint(0, 3, (16,))
        plain, pipe = network(), GPipe(network(), [2, 2], devices=["cpu"] * 2, chunks=4)
        for module in (plain, pipe):
            optimizer = torch.optim.AdamW(module.parameters(), lr=1e-2)
            for _ in range(20):
                optimizer.zero_grad()
                nn.functional.cross_entropy(module(x), y).backward()
                optimizer.step()
        for ours, theirs in zip(pipe.parameters(), plain.parameters()):
            torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-4)

    def test_two_forwards_may_precede_their_backwards(self):
        first, second = torch.randn(4, 6), torch.randn(4, 6)
        together, apart = (GPipe(network(), [2, 2], devices=["cpu"] * 2, chunks=2) for _ in range(2))
        outputs = [together(first), together(second)]
        for output in outputs:
            output.sum().backward()
        for x in (first, second):
            apart(x).sum().backward()
        self.assertTrue(equal(gradients(together), gradients(apart)))

    def test_second_backward_is_refused(self):
        output = GPipe(network(), [2, 2], devices=["cpu"] * 2)(torch.randn(2, 6))
        output.sum().backward(retain_graph=True)
        with self.assertRaisesRegex(RuntimeError, "was used already"):
            output.sum().backward()

    def test_frozen_parameters_have_no_gradients(self):
        model = network()
        model[0].requires_grad_(False)
        for checkpoint in CHECKPOINTS:
            pipe = GPipe(copy.deepcopy(model), [1, 3], devices=["cpu"] * 2, checkpoint=checkpoint)
            pipe(torch.randn(2, 6)).sum().backward()
            self.assertIsNone(pipe[0].weight.grad)
            self.assertIsNotNone(pipe[2].weight.grad)

    def test_integers_and_tuples_pass_between_partitions(self):
        class Split(nn.Module):
            def forward(self, x):
                return x * 2, x.argmax(1)

        class Join(nn.Module):
            def forward(self, pair):
                return pair[0] + pair[1].unsqueeze(1), pair[1]

        x = torch.randn(6, 4, requires_grad=True)
        output, chosen = GPipe(nn.Sequential(Split(), Join()), [1, 1], devices=["cpu"] * 2, chunks=3)(x)
        self.assertTrue(torch.equal(chosen, x.argmax(1)) and not chosen.requires_grad)
        output.sum().backward()
        self.assertTrue(torch.equal(x.grad, torch.full_like(x, 2)))

    def test_error_of_backward_reaches_the_caller_and_the_pipeline_goes_on(self):
        class Fails(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x.clone()

            @staticmethod
            def backward(ctx, gradient):
                raise KeyError("mine")

        class Failing(nn.Module):
            fails = True

            def forward(self, x):
                return Fails.apply(x) if self.fails else x

        model = network()
        model[1] = Failing()
        pipe = GPipe(model, [1, 1, 2], devices=["cpu"] * 3, chunks=4)
        with self.assertRaisesRegex(KeyError, "mine"):
            pipe(torch.randn(4, 6)).sum().backward()
        pipe[1].fails = False
        pipe.zero_grad()
        pipe(torch.randn(4, 6)).sum().backward()
        self.assertIsNotNone(pipe[0].weight.grad)

    def test_layers_know_whether_they_are_recomputed(self):
        seen = []

        class Watch(nn.Module):
            def forward(self, x):
                seen.append((is_checkpointing(), is_recomputing()))
                return x

        pipe = GPipe(nn.Sequential(nn.Linear(2, 2), Watch()), [2], devices=["cpu"], chunks=2)
        pipe(torch.randn(2, 2)).sum().backward()
        self.assertEqual(seen, [(True, False), (False, False), (False, True)])
        self.assertFalse(is_checkpointing() or is_recomputing())

    def test_partitions_work_at_the_same_time_in_both_directions(self):
        chunks, met = 4, []
        barriers = {way: threading.Barrier(2, timeout=20) for way in ("forward", "backward")}

        def meet(way, partition, micro_batch):
            # In the forward pass partition 0 is one micro-batch ahead, in the backward pass partition 1 is. The one
            # ahead has met no partition at its first micro-batch, the other one meets none at its last.
            ahead = partition == (0 if way == "forward" else 1)
            if micro_batch != (0 if ahead else chunks - 1):
                barriers[way].wait()
                met.append(way)

        class Meet(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x, partition, micro_batch):
                ctx.place = (partition, micro_batch)
                meet("forward", partition, micro_batch)
                return x.clone()

            @staticmethod
            def backward(ctx, gradient):
                meet("backward", *ctx.place)
                return gradient, None, None

        class Meeting(nn.Module):
            def __init__(self, partition):
                super().__init__()
                self.partition, self.count = partition, 0

            def forward(self, x):
                self.count += 1
                return Meet.apply(x, self.partition, self.count - 1)

        pipe = GPipe(nn.Sequential(Meeting(0), Meeting(1)), [1, 1], devices=["cpu"] * 2, chunks=chunks, checkpoint="never")
        pipe(torch.randn(chunks, 3, requires_grad=True)).sum().backward()
        self.assertEqual([met.count(way) for way in ("forward", "backward")], [2 * (chunks - 1)] * 2)

    def test_copies_and_pickles_have_threads_of_their_own(self):
        pipe, x = GPipe(network(), [2, 2], devices=["cpu"] * 2, chunks=2), torch.randn(4, 6)
        expected = pipe(x)
        self.assertTrue(torch.equal(copy.deepcopy(pipe)(x), expected))
        self.assertTrue(torch.equal(pickle.loads(pickle.dumps(pipe))(x), expected))

    def test_threads_and_tensors_end_with_the_module(self):
        def threads(count):
            """Whether there are so many, within two seconds."""
            for _ in range(100):
                if sum(thread.name == "strata.GPipe" for thread in threading.enumerate()) == count:
                    return True
                threading.Event().wait(0.02)
            return False

        gc.collect()
        self.assertTrue(threads(0))
        pipe, x = GPipe(network(), [1, 3], devices=["cpu"] * 2, chunks=2), torch.randn(4, 6)
        output = pipe(x)
        output.sum().backward()
        watched = weakref.ref(output)
        del output
        gc.collect()
        self.assertIsNone(watched())
        self.assertTrue(threads(2))
        del pipe
        gc.collect()
        self.assertTrue(threads(0))

    def test_evaluation_keeps_nothing_and_draws_nothing(self):
        pipe = GPipe(nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5)), [1, 1], devices=["cpu"] * 2, chunks=2).eval()
        x = torch.randn(4, 3)
        state = torch.get_rng_state()
        with torch.no_grad():
            output = pipe(x)
            self.assertTrue(torch.equal(output, pipe[0](x)))
        self.assertIsNone(output.grad_fn)
        self.assertTrue(torch.equal(torch.get_rng_state(), state))


class BalanceTest(unittest.TestCase):
    def test_blocks_have_the_smallest_largest_sum(self):
        import itertools
        import random

        random.seed(1)
        for _ in range(200):
            costs = [random.randint(0, 9) for _ in range(random.randint(1, 9))]
            count = random.randint(1, len(costs))
            blocks = blockpartition.solve(costs, count)
            self.assertEqual(sum(blocks, []), costs)
            self.assertEqual(len(blocks), count)
            every = (max(sum(costs[a:b]) for a, b in zip((0, *cuts), (*cuts, len(costs)))) for cuts in itertools.combinations(range(1, len(costs)), count - 1))
            self.assertEqual(max(map(sum, blocks)), min(every))

    def test_stashed_results_may_be_profiled(self):
        @skippable(stash=["s"])
        class Stash(nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = nn.Linear(4, 4)

            def forward(self, x):
                x = self.layer(x)
                yield stash("s", x)
                return x

        @skippable(pop=["s"])
        class Pop(nn.Module):
            def forward(self, x):
                skipped = yield pop("s")
                return x * skipped

        model = nn.Sequential(Stash(), nn.Linear(4, 4), Pop())
        self.assertEqual(sum(balance_by_time(2, model, torch.randn(8, 4), timeout=0.05, device="cpu")), 3)
        self.assertEqual(sum(balance_by_size(2, model, torch.randn(8, 4), device="cpu")), 3)

    def test_sizes_count_what_the_backward_needs(self):
        wide = nn.Sequential(*[nn.Sequential(nn.Linear(4, 4), nn.Tanh()) for _ in range(3)], nn.Sequential(nn.Linear(4, 400), nn.Tanh(), nn.Linear(400, 4)))
        self.assertEqual(balance_by_size(2, wide, torch.randn(8, 4), device="cpu"), [3, 1])


if __name__ == "__main__":
    unittest.main()
