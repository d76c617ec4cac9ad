"""Tests training with state in host memory: the same bits as on the device, for any window, order
of accumulation, number of threads or stop; and that budgets hold."""

import hashlib
import unittest

from strata_program import ProgramTest

RECIPE = """\
model:  {kind: gpt, layers: 6, width: 32, heads: 2, vocab: 256, context: 32, dropout: 0.1, tie: false}
data:   {train: text.txt, tokenizer: bytes, validation_fraction: 0.1}
train:  {steps: 50, mini_batch: 8, micro_batch: 2, warmup: 4, clip: 0.5, seed: 1,
         optimizer: {kind: adamw, learning_rate: 1e-3}, checkpoint_folder: saved}
mesh:   {threads: 1}
memory: {recompute: cheap}
"""
ON_HOST = ["memory.weights=host", "memory.gradients=host", "memory.states=host"]


def settings(*fields):
    return [word for field in fields for word in ("--set", field)]


class Offload(ProgramTest):
    def setUp(self):
        super().setUp()
        (self.folder / "recipe.yaml").write_text(RECIPE)

    def digests(self, folder):
        """SHA-256 of the last checkpoint's weights and optimizer states."""
        last = sorted((self.folder / folder).glob("step-????????"))[-1]
        files = sorted(path for path in last.iterdir() if path.suffix == ".safetensors")
        self.assertGreaterEqual(len(files), 2)
        return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}

    def train(self, name, *fields, more=()):
        self.succeed("train", "recipe.yaml", "--metrics", f"{name}.jsonl", *more,
                     *settings(f"train.checkpoint_folder={name}", *fields))
        return self.losses(f"{name}.jsonl"), self.digests(name)

    def test_windows_accumulation_clipping_threads_and_stops_change_no_bit(self):
        count = 0
        for clip in ("train.clip=0", "train.clip=0.5"):
            for micro_batch in (8, 2):
                fields = (clip, f"train.micro_batch={micro_batch}")
                expected = self.train(f"memory{count}", *fields)
                self.assertEqual(len(expected[0]), 50)
                for window in (1, 2, 4, 100):
                    for schedule in ("gpipe", "vertical") if micro_batch == 2 else ("gpipe",):
                        count += 1
                        more = (*ON_HOST, f"memory.window={window}", f"mesh.schedule={schedule}",
                                f"mesh.threads={1 + count % 2}")
                        with self.subTest(fields=fields, more=more):
                            self.assertEqual(self.train(f"host{count}", *fields, *more), expected)

    def test_stop_after_half_of_steps_changes_no_bit(self):
        expected = self.train("memory")
        fields = (*ON_HOST, "memory.window=2")
        self.train("half", *fields, "train.checkpoint_every=25")
        resumed = sorted((self.folder / "half").glob("step-00000025"))
        self.assertEqual(len(resumed), 1)
        losses, digests = self.train("resumed", *fields, more=("--resume", str(resumed[0])))
        self.assertEqual(losses, expected[0][25:])
        self.assertEqual(digests, expected[1])

    def test_refuses_plans_over_budget_and_keeps_others_within(self):
        for where in ("device", "host"):
            fields = [*ON_HOST, f"memory.weights={where}", "train.steps=3"]
            self.train(f"free-{where}", *fields)
            line = self.metrics(f"free-{where}.jsonl")[-1]
            self.assertEqual(len(line["offload"]["host_peak_bytes"]), 1)
            self.assertGreater(line["offload"]["bytes_to_host"], 0)
            host = line["offload"]["host_peak_bytes"][0]
            self.train(f"exact-{where}", *fields, f"memory.host={host}")
            self.refuse("train", "recipe.yaml", *settings(*fields, f"memory.host={host * 97 // 100}"),
                        says="memory")

    def test_budget_moves_state_to_host(self):
        expected = self.train("memory", "train.steps=3")
        peak = max(self.metrics("memory.jsonl")[-1]["peak_bytes"])
        losses, digests = self.train("tight", "train.steps=3", f"memory.device={peak // 2}")
        self.assertEqual((losses, digests), expected)
        self.assertLessEqual(max(self.metrics("tight.jsonl")[-1]["peak_bytes"]), peak // 2)
        self.assertIn("offload", self.metrics("tight.jsonl")[-1])
        self.assertNotIn("offload", self.metrics("memory.jsonl")[-1])

    def test_refuses_contradictory_settings(self):
        self.refuse("train", "recipe.yaml", *settings("memory.weights=host", "memory.states=device"),
                    says="memory.states")


if __name__ == "__main__":
    unittest.main()
