"""Tests training with samples that ranks divide (mesh.cp): against one rank, as threads and processes, counted
against planned bytes, resumed on other meshes, and refusals."""

import json
import unittest

from strata_program import ProgramTest

ONE = ["--set", "mesh.pp=1", "--set", "mesh.threads=1"]
RING = [*ONE, "--set", "mesh.cp=2"]
EXCHANGE = [*RING, "--set", "mesh.cp_exchange=ulysses"]
SAVE = ["--set", "train.checkpoint_folder=saved", "--set", "train.checkpoint_every=1", "--set", "train.keep_checkpoints=0"]
PROCESSES = ("launch", "-n", "2", "--")


class Context(ProgramTest):
    def train(self, *arguments, launch=()):
        """The lines of the metrics."""
        self.out = self.succeed(*launch, "train", "recipe.yaml", "--metrics", "m.jsonl", *arguments)
        lines = self.metrics("m.jsonl")
        (self.folder / "m.jsonl").unlink()
        return lines

    def assert_close(self, lines, expected, tolerance=1e-5):
        self.assertEqual(len(lines), len(expected))
        for line, other in zip(lines, expected):
            self.assertAlmostEqual(line["loss"], other["loss"], delta=tolerance * other["loss"])

    def test_threads_and_processes_have_equal_bits_and_learn_what_one_rank_learns(self):
        one = self.train(*ONE)
        for setting in (RING, EXCHANGE):
            threads = self.train(*setting)
            processes = self.train(*setting, launch=PROCESSES)
            self.assertEqual([line["loss_hex"] for line in threads], [line["loss_hex"] for line in processes])
            self.assert_close(threads, one)

    def test_counted_bytes_agree_with_plan(self):
        for setting in (RING, [*ONE, "--set", "mesh.cp=4"], EXCHANGE,
                        [*RING, "--set", "memory.recompute=attention"], [*EXCHANGE, "--set", "memory.recompute=full"]):
            with self.subTest(setting[4:]):
                self.succeed("plan", "recipe.yaml", "--estimate", "--json", "plan.json", *setting)
                plan = json.loads((self.folder / "plan.json").read_text())
                lines = self.train(*setting)
                ranks = len(lines[0]["peak_bytes"])
                for axis in ("cp", "dp"):
                    planned = plan["ranks"][0]["communication"][axis]["sent_bytes"] * ranks
                    for line in lines:
                        self.assertAlmostEqual(line["sent_bytes"][axis], planned, delta=0.04 * planned)

    def test_verify_compares_with_attention_of_whole_samples(self):
        for setting in (RING, EXCHANGE, [*RING, "--set", "mesh.dp=2", "--set", "mesh.tp=2", "--set", "mesh.sequence_parallel=true"]):
            self.assertIn("of each layer's largest gradient", self.succeed("verify", "recipe.yaml", *setting))

    def test_equal_blocks_give_nearly_equal_first_losses_on_any_number_of_ranks(self):
        # The ranks' sums of losses are added in another grouping, and later steps also have other sums of gradients.
        losses = {self.train(*ONE, "--set", f"mesh.cp={ranks}", "--set", "mesh.cp_block=4", "--set", "train.steps=1")[0]["loss"]
                  for ranks in (1, 2, 4)}
        self.assertLess(max(losses) - min(losses), 1e-9)

    def test_run_resumes_on_other_ranks(self):
        whole = self.train(*RING, *SAVE)
        for setting in (RING, ONE, [*ONE, "--set", "mesh.cp=4"], EXCHANGE, [*ONE, "--set", "mesh.dp=2"]):
            rest = self.train(*setting, "--resume", "saved/step-00000003")
            self.assert_close(rest, whole[3:], tolerance=1e-4)
            if setting is RING:
                self.assertEqual([line["loss_hex"] for line in rest], [line["loss_hex"] for line in whole[3:]])

    def test_checkpoint_of_ranks_that_divide_samples_generates_text(self):
        self.train(*RING, "--set", "train.checkpoint_folder=saved")
        self.succeed("generate", "saved", "--prompt", "In the", "--tokens", "4")

    def test_one_sample_a_micro_batch_divided_by_both_axes(self):
        one_sample = ["--set", "train.mini_batch=2", "--set", "train.micro_batch=1"]
        one = self.train(*ONE, *one_sample)
        for cp in (1, 2):
            lines = self.train(*ONE, *one_sample, "--set", f"mesh.cp={cp}", "--set", "mesh.tp=2", "--set", "mesh.sequence_parallel=true")
            self.assert_close(lines, one)

    def test_impossible_divisions_are_refused(self):
        self.refuse("train", "recipe.yaml", *ONE, "--set", "mesh.cp=3", says="mesh.cp")
        self.refuse("train", "recipe.yaml", *RING, "--set", "mesh.cp_block=3", says="mesh.cp_block")
        self.refuse("train", "recipe.yaml", *EXCHANGE, "--set", "mesh.cp=4", says="mesh.cp_exchange=ring")
        self.refuse("train", "recipe.yaml", *EXCHANGE, "--set", "mesh.cp_block=4", says="mesh.cp_block=0")
        self.refuse("train", "recipe.yaml", *ONE, "--set", "mesh.cp_exchange=ulysses", says="mesh.cp of at least 2")

    def test_report_shows_what_the_ranks_exchange(self):
        self.succeed("train", "recipe.yaml", *RING, "--report", "report.html")
        page = (self.folder / "report.html").read_text()
        self.assertIn("cp: exchange of attention", page)
        self.assertIn("dp: exchange between replicas", page)  # gradients of ranks with the same weights


if __name__ == "__main__":
    unittest.main()
