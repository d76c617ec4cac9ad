"""Tests limits on file sizes (ulimit -f) for every file that a run writes. The run ends with one
SystemError that names the limit, not by a signal, and earlier files stay complete."""

import resource
import subprocess
import unittest

from strata_program import PROGRAM, ProgramTest

SAVE = ("--set", "train.checkpoint_folder=saved", "--set", "train.decay=constant")


class FileLimit(ProgramTest):
    def limited(self, limit, *arguments, says):
        """Expects that the program ends with one SystemError under a limit of so many bytes."""
        done = subprocess.run([PROGRAM, *arguments], cwd=self.folder, env=self.environment, text=True,
                              capture_output=True, timeout=120,
                              preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)))
        self.assertEqual(done.returncode, 3, done.stdout + done.stderr)
        self.assertEqual(done.stderr.count("[", 0, done.stderr.find("]")), 1, done.stderr)
        for words in (says, "ulimit -f"):
            self.assertIn(words, done.stderr)
        return done.stderr

    def names(self, folder):
        return sorted(path.name for path in (self.folder / folder).iterdir())

    def test_reports_limit_for_checkpoint(self):
        self.succeed("train", "recipe.yaml", *SAVE, "--metrics", "m.jsonl")
        self.limited(64 << 10, "train", "recipe.yaml", *SAVE, "--resume", "saved", "--set", "train.steps=12",
                     says="step-00000012.partial")
        self.assertEqual(self.names("saved"), ["LOCK", "step-00000008"])
        self.succeed("train", "recipe.yaml", *SAVE, "--resume", "saved", "--metrics", "m.jsonl", "--set",
                     "train.steps=12")
        self.succeed("train", "recipe.yaml", "--metrics", "whole.jsonl", "--set", "train.steps=12", "--set",
                     "train.decay=constant")
        self.assertEqual(self.losses("m.jsonl")[8:], self.losses("whole.jsonl")[8:])

    def test_reports_limit_for_results(self):
        for option, limit in (("--metrics", 1000), ("--report", 4000), ("--trace", 4000)):
            with self.subTest(option):
                self.limited(limit, "train", "recipe.yaml", option, "result", says="result")
        self.limited(500, "train", "recipe.yaml", "--set", "train.tensorboard=events", says="events.out")
        self.limited(4000, "plan", "recipe.yaml", "--estimate", "--json", "plan.json", says="plan.json")

    def test_reports_limit_for_output(self):
        with open(self.folder / "printed", "w") as printed:
            done = subprocess.run([PROGRAM, "options"], cwd=self.folder, env=self.environment, text=True,
                                  stdout=printed, stderr=subprocess.PIPE, timeout=60,
                                  preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (4000, 4000)))
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertIn("standard output", done.stderr)

    def test_reports_limit_for_converted_samples(self):
        (self.folder / "in.csv").write_text("a,b\n" + "1,22222222\n" * 10000)
        for name in ("out.strata", "out.csv", "out.tsv"):
            self.limited(10000, "convert", "in.csv", name, says=name)
            self.assertEqual(list(self.folder.glob("out*")), [])


if __name__ == "__main__":
    unittest.main()
