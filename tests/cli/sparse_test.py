"""Tests sparse attention patterns: planned, trained as threads and processes, verified, resumed, generated from, and refusals."""

import json
import unittest

from strata_program import ProgramTest

ONE = ["--set", "mesh.pp=1", "--set", "mesh.threads=1"]
SLIDING = ["--set", "model.attention.pattern=sliding", "--set", "model.attention.window=5"]
BIGBIRD = ["--set", "model.context=128", "--set", "model.attention.pattern=bigbird", "--set", "model.attention.block=16",
           "--set", "model.attention.window=32", "--set", "model.attention.random_blocks=1", "--set", "model.attention.forms=2"]
EXCHANGE = ["--set", "mesh.cp=2", "--set", "mesh.cp_exchange=ulysses"]
SAVE = ["--set", "train.checkpoint_folder=saved", "--set", "train.checkpoint_every=4", "--set", "train.keep_checkpoints=0"]


class Sparse(ProgramTest):
    def losses(self, *arguments, launch=()):
        self.succeed(*launch, "train", "recipe.yaml", "--metrics", "m.jsonl", *arguments)
        lines = self.metrics("m.jsonl")
        (self.folder / "m.jsonl").unlink()
        return [line["loss_hex"] for line in lines], [line["loss"] for line in lines]

    def test_stages_and_processes_change_no_bit_and_the_pattern_changes_the_loss(self):
        for pattern in (SLIDING, BIGBIRD):
            one, _ = self.losses(*ONE, *pattern)
            self.assertEqual(self.losses(*pattern)[0], one)
            self.assertEqual(self.losses(*pattern, launch=("launch", "-n", "2", "--"))[0], one)
            self.assertNotEqual(self.losses(*ONE, *pattern, "--set", "model.attention.dense_every=2")[0], one)

    def test_verify_compares_gradients_of_meshes(self):
        for mesh in (["--set", "mesh.tp=2"], EXCHANGE):
            self.assertIn("of each layer's largest gradient", self.succeed("verify", "recipe.yaml", *ONE, *BIGBIRD, *mesh))

    def test_checkpoint_keeps_the_pattern(self):
        whole, _ = self.losses(*ONE, *BIGBIRD, *SAVE)
        rest, _ = self.losses(*ONE, *BIGBIRD, "--resume", "saved/step-00000004")
        self.assertEqual(rest, whole[4:])
        self.refuse("train", "recipe.yaml", *ONE, *BIGBIRD, "--set", "model.attention.window=64", "--resume", "saved/step-00000004",
                    says="set model.attention.pattern=bigbird model.attention.block=16 model.attention.window=32")
        for weights in ((), ("--weights", "int8")):
            self.succeed("generate", "saved", "--prompt", "In the", "--tokens", "60", *weights)
        config = json.loads((self.folder / "saved/step-00000008/config.json").read_text())
        self.assertEqual(config["model_type"], "strata-gpt")

    def test_plan_counts_the_pairs_of_blocks(self):
        def seconds(*arguments):
            self.succeed("plan", "recipe.yaml", "--estimate", "--json", "plan.json", *ONE, *arguments)
            return json.loads((self.folder / "plan.json").read_text())["step_seconds"]
        long = ["--set", "model.context=4096", "--set", "train.micro_batch=1"]
        self.assertLess(seconds(*long, *SLIDING), 0.3 * seconds(*long))

    def test_what_does_not_fit_is_refused(self):
        self.refuse("train", "recipe.yaml", *ONE, "--set", "model.attention.window=5", says="a field that the pattern dense does not have")
        self.refuse("train", "recipe.yaml", *ONE, *SLIDING, "--set", "mesh.cp=2", says="set mesh.cp_exchange=ulysses")
        self.refuse("train", "recipe.yaml", *ONE, *SLIDING, "--set", "mesh.cp_block=4", says="mesh.cp_block=0")
        self.refuse("train", "recipe.yaml", *ONE, *BIGBIRD, "--set", "model.attention.forms=3", says="model.attention.forms")
        self.refuse("plan", "recipe.yaml", *ONE, "--set", "model.attention.pattern=band", says="bigbird")


if __name__ == "__main__":
    unittest.main()
