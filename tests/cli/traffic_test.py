"""Tests gradients and weights that ranks send as integers: counted, planned, slower links, resumed, and refused."""

import json
import unittest

from strata_program import ProgramTest

ONE = ["--set", "mesh.pp=1", "--set", "mesh.threads=1"]
REPLICAS = [*ONE, "--set", "mesh.dp=2"]
PROCESSES = ("launch", "-n", "2", "--")


def traffic(**formats):
    return [word for field, value in formats.items() for word in ("--set", f"mesh.traffic.{field}={value}")]


class IntegerTraffic(ProgramTest):
    def train(self, *arguments, launch=()):
        self.succeed(*launch, "train", "recipe.yaml", "--metrics", "m.jsonl", *arguments)
        lines = self.metrics("m.jsonl")
        (self.folder / "m.jsonl").unlink()
        return lines

    def sent(self, *arguments):
        """Bytes along dp in a step: counted, and planned."""
        lines = self.train(*arguments)
        self.succeed("plan", "recipe.yaml", "--estimate", "--json", "plan.json", *arguments)
        plan = json.loads((self.folder / "plan.json").read_text())
        ranks = len(lines[0]["peak_bytes"])
        planned = sum(rank["communication"]["dp"]["sent_bytes"] for rank in plan["ranks"]) * ranks / len(plan["ranks"])
        return lines[-1]["sent_bytes"]["dp"], planned

    def test_integers_are_fewer_bytes_as_planned(self):
        wide = ["--set", "model.width=128", "--set", "model.heads=4"]
        for zero, formats, least in ((0, {"gradients": "int8"}, 3.7), (0, {"gradients": "int4"}, 6.5),
                                     (3, {"gradients": "int4", "weights": "int8"}, 4.2), (3, {"weights": "int4", "block": 256}, 1.9)):
            with self.subTest(zero=zero, **formats):
                mesh = [*ONE, *wide, "--set", "mesh.dp=4", "--set", f"mesh.zero={zero}"]
                full, _ = self.sent(*mesh)
                counted, planned = self.sent(*mesh, *traffic(**formats))
                self.assertGreater(full / counted, least)
                self.assertAlmostEqual(counted, planned, delta=0.04 * planned)

    def test_processes_and_resumes_change_no_bit(self):
        mesh = [*REPLICAS, "--set", "mesh.zero=3", *traffic(gradients="int8", weights="int8")]
        save = ["--set", "train.checkpoint_folder=saved", "--set", "train.checkpoint_every=4", "--set", "train.keep_checkpoints=0"]
        whole = [line["loss_hex"] for line in self.train(*mesh, *save)]
        self.assertEqual([line["loss_hex"] for line in self.train(*mesh, launch=PROCESSES)], whole)
        self.assertEqual([line["loss_hex"] for line in self.train(*mesh, "--resume", "saved/step-00000004")], whole[4:])
        self.assertNotEqual([line["loss_hex"] for line in self.train(*REPLICAS, "--set", "mesh.zero=3")], whole)

    def test_plan_covers_the_peak_of_processes_that_receive_codes(self):
        wide = ["--set", "model.width=512", "--set", "model.heads=8", "--set", "model.layers=1", "--set", "train.steps=4"]
        for zero, formats in ((0, {"gradients": "int8"}), (2, {"gradients": "int8"}), (3, {"gradients": "int8", "weights": "int8"})):
            with self.subTest(zero=zero):
                mesh = [*ONE, *wide, "--set", "mesh.dp=4", "--set", f"mesh.zero={zero}", "--set", "mesh.link.bandwidth=100MB", *traffic(**formats)]
                self.succeed("plan", "recipe.yaml", "--estimate", "--json", "plan.json", *mesh)
                planned = json.loads((self.folder / "plan.json").read_text())["ranks"][0]["memory"]["peak_bytes"]
                lines = self.train(*mesh, launch=("launch", "-n", "4", "--"))
                self.assertLess(max(max(line["peak_bytes"]) for line in lines), 1.01 * planned)

    def test_plan_names_the_formats(self):
        self.assertIn("gradients int8, weights full", self.succeed("plan", "recipe.yaml", "--estimate", *REPLICAS, *traffic(gradients="int8")))
        self.assertIn("no effect  mesh.traffic", self.succeed("plan", "recipe.yaml", "--estimate", *ONE, *traffic(gradients="int8")))

    def test_what_it_does_not_do_is_refused(self):
        int8 = traffic(gradients="int8")
        self.refuse("train", "recipe.yaml", *REPLICAS, *traffic(weights="int8"), says="set mesh.zero=3")
        self.refuse("train", "recipe.yaml", "--set", "mesh.auto=true", *traffic(weights="int8"), says="mesh.auto=false")
        self.refuse("train", "recipe.yaml", *REPLICAS, *traffic(gradients="int8", block=96), says="set mesh.traffic.block=64")
        self.refuse("train", "recipe.yaml", *REPLICAS, *traffic(block=64), says="set mesh.traffic.gradients=int8")
        self.refuse("train", "recipe.yaml", *REPLICAS, *traffic(gradients="int2"), says="int4")
        for other in (["train.optimizer.kind=onebit-adam"], ["train.outer_steps.every=4"]):
            self.refuse("train", "recipe.yaml", *REPLICAS, *int8, *(word for field in other for word in ("--set", field)),
                        says="set mesh.traffic.gradients=full")
        self.refuse("verify", "recipe.yaml", *REPLICAS, *int8, says="--set mesh.traffic.gradients=full")


if __name__ == "__main__":
    unittest.main()
