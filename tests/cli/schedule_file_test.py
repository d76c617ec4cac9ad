"""Tests schedules from CSV files: those that PyTorch's pipelining writes train with the bits of one rank."""

import json
import types
import unittest

from strata_program import ProgramTest

RANKS, MICRO_BATCHES = 2, 8
STEPS = ("--set", "train.steps=3", "--set", "train.mini_batch=16")


def pytorch_schedules():
    from torch.distributed.pipelining import schedules as torch_schedules

    def stages(places, count):
        return [types.SimpleNamespace(stage_index=place, num_stages=count, group_size=RANKS, group_rank=0, group=None,
                                      is_first=place == 0, is_last=place == count - 1, submod=None, has_backward=True,
                                      device="cpu")
                for place in places]

    for name, places, per_rank in [("ScheduleInterleaved1F1B", [0, 2], 2), ("ScheduleInterleavedZeroBubble", [0, 2], 2),
                                   ("ScheduleZBVZeroBubble", [0, 3], 2), ("ScheduleDualPipeV", [0, 3], 2)]:
        made = getattr(torch_schedules, name)(stages(places, RANKS * per_rank), MICRO_BATCHES, loss_fn=lambda *_: None)
        yield name, per_rank, made


class ScheduleFile(ProgramTest):
    def bits(self, *settings):
        self.succeed("train", "recipe.yaml", *STEPS, *settings, "--metrics", "out.jsonl")
        return [(line["loss_hex"], line["gradient_norm"]) for line in self.metrics("out.jsonl")]

    def setting(self, **fields):
        return [word for name, value in fields.items() for word in ("--set", f"mesh.{name}={value}")]

    def test_orders_of_pytorch_train_with_the_bits_of_one_rank(self):
        try:
            orders = list(pytorch_schedules())
        except ImportError:
            self.skipTest("torch is not installed")
        alone = self.bits(*self.setting(pp=1, schedule="gpipe"))
        for name, per_rank, made in orders:
            with self.subTest(name):
                path = self.folder / f"{name}.csv"
                made._dump_csv(str(path))
                self.assertIn("F0", path.read_text())
                losses = self.bits(*self.setting(pp=RANKS, schedule="file", schedule_file=path, virtual_stages=per_rank))
                self.assertEqual(losses, alone)

    def test_own_schedules_with_halves_have_the_bits_of_one_rank(self):
        alone = self.bits(*self.setting(pp=1, schedule="gpipe"))
        for schedule in ("zb-h1", "zb-h2", "zb", "zbv", "v-half", "v-min", "dualpipev"):
            with self.subTest(schedule):
                self.assertEqual(self.bits(*self.setting(pp=RANKS, schedule=schedule)), alone)

    def test_a_searched_order_is_searched_again_and_resumes_with_the_same_bits(self):
        zb = self.setting(pp=4, schedule="zb")
        steps = ("--set", "train.mini_batch=32", "--set", "train.steps=10", "--set", "model.layers=16")
        self.succeed("train", "recipe.yaml", *steps, *self.setting(pp=1, schedule="gpipe"), "--metrics", "alone.jsonl")
        expected = self.losses("alone.jsonl")
        self.succeed("plan", "recipe.yaml", *steps, *zb)
        cache = self.folder / "cache/strata/probe.json"
        probes = json.loads(cache.read_text())
        blocks = [probe for probe in probes.values() if probe.get("weights", [0])[0] > 0]
        self.assertTrue(blocks, "the probe measured no second half")
        for probe in blocks:
            self.assertGreater(probe["backward"][0], probe["weights"][0])
        # The plan believes that forwards take nearly no time, and second halves much.
        for probe in probes.values():
            probe["forward"][0] *= 0.05
            if "weights" in probe:
                probe["weights"][0] *= 8
        for attempt in range(4):  # the measured times may be disturbed
            cache.write_text(json.dumps(probes))
            saved = f"saved{attempt}"
            _, out, err = self.run_program("train", "recipe.yaml", *steps, *zb, "--metrics", "zb.jsonl", "--set",
                                           "train.checkpoint_every=5", "--set", f"train.checkpoint_folder={saved}")
            self.assertEqual(self.losses("zb.jsonl"), expected, err)
            changes = "schedule: measured times allow" in out + err
            if changes:
                break
        self.succeed("train", "recipe.yaml", *steps, *zb, "--resume", f"{saved}/step-00000005", "--metrics", "rest.jsonl")
        self.assertEqual(self.losses("rest.jsonl"), expected[5:])
        if not changes:
            self.skipTest("with the times of this machine no other order is faster")

    def test_plan_shows_halves(self):
        out = self.succeed("plan", "recipe.yaml", "--estimate", *self.setting(pp=RANKS, schedule="zb-h1"))
        self.assertIn("W0", out)
        self.assertIn("I0", out)

    def test_files_that_are_no_orders_are_refused(self):
        def refused(text, expected, **fields):
            (self.folder / "order.csv").write_text(text)
            settings = {"pp": RANKS, "schedule": "file", "schedule_file": self.folder / "order.csv", **fields}
            self.refuse("train", "recipe.yaml", *STEPS, *self.setting(**settings), says=expected)

        whole = "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n"
        refused("", "the file is empty")
        refused(",,\n", "the order is empty")
        deadlock = "0F0,0B0,0F1,0B1\n1F0,1F1,1B0,1B1\n"
        refused(deadlock, ["deadlock: the ranks wait for one another in a cycle", "<-- ERROR HERE"])
        refused("0F0,0F1,0B0,0B1\n1F0,1F1\n", "a receive has no send")
        refused("0F0,1F0,1B0,0B0\n,,\n", "the order is for another number of stages on line 1")
        refused("0F0,1F0,1B0,0B0,3F0,3B0\n2F0,2B0\n", "the order is for another number of stages on line", virtual_stages=2)
        refused("0F0,hello\n", ["order.csv:1, cell 2", "a cell is no action"])
        refused(whole, "the order is for another number of ranks", pp=1)
        refused(whole, "the order is for another number of stages on line 1", virtual_stages=2)
        refused(whole, "mesh.auto chooses the schedule", auto="true")
        refused(whole, "the order has fewer micro-batches than the step")
        refused(whole, "another schedule is chosen", schedule="gpipe")
        many = range(MICRO_BATCHES)
        backwards = ",".join(f"1F{i}" for i in many) + "," + ",".join(f"1B{i}" for i in reversed(many))
        refused(",".join(f"0F{i}" for i in many) + "," + ",".join(f"0B{i}" for i in many) + "\n" + backwards + "\n",
                "weight gradients accumulate out of ascending micro-batch order")
        refused(",".join(f"0F{i}" for i in many) + "\n" + ",".join(f"1F{i}" for i in many) + "\n", "before it is complete")
        self.refuse("train", "recipe.yaml", *self.setting(pp=RANKS, schedule="file", schedule_file="missing.csv"),
                    says="missing.csv")


if __name__ == "__main__":
    unittest.main()
