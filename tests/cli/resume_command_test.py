"""Tests resuming after a stop: the printed command, restarts, and closed or full streams."""

import os
import shlex
import signal
import subprocess
import time
import unittest

from strata_program import PROGRAM, ProgramTest, text_of

BASE = "model:  {kind: gpt, layers: 3, width: 48, heads: 3, vocab: 256, context: 16}\n"
# Names no model: it is that of --from.
TUNING = """\
data:   {train: text.txt, validation_fraction: 0.1}
train:  {steps: 300, mini_batch: 4, micro_batch: 2, checkpoint_folder: tuned, keep_checkpoints: 0}
mesh:   {pp: 2, threads: 1}
"""


def wait_for(path, lines=1, seconds=60):
    deadline = time.time() + seconds
    while time.time() < deadline:
        if text_of(path).count("\n") >= lines:
            return True
        time.sleep(0.002)
    return False


class FineTuning(ProgramTest):
    def setUp(self):
        super().setUp()
        (self.folder / "base.yaml").write_text(BASE + TUNING.replace("tuned", "base"))
        (self.folder / "tuning.yaml").write_text(TUNING)
        self.succeed("train", "base.yaml", "--set", "train.steps=2")

    def test_printed_command_resumes_run(self):
        command = ["train", "--set", "train.optimizer.learning_rate=2e-3", "tuning.yaml", "--from",
                   "base", "--set=train.seed=4", "--set", "train.decay=constant", "--metrics"]
        process = self.start(*command, "its metrics.jsonl", "--set", "train.steps=100000")
        self.assertTrue(wait_for(self.folder / "its metrics.jsonl", 3))
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 0, err)
        done = len(self.losses("its metrics.jsonl"))
        self.assertIn(f"stopped after step {done} of 100000", out)
        [line] = [line for line in out.splitlines() if line.startswith("resume ")]
        words = shlex.split(line)
        # in the form in which it was started, so that a shell finds it
        self.assertEqual(words[1:3], [PROGRAM, "train"])
        steps = ("--set", f"train.steps={done + 20}")
        self.succeed(*words[2:], *steps)
        self.succeed(*command, "whole.jsonl", "--set", "train.checkpoint_folder=whole", *steps)
        self.assertEqual(self.losses("its metrics.jsonl"), self.losses("whole.jsonl"))

    def test_printed_command_mentions_recipe_from_standard_input(self):
        with open(self.folder / "tuning.yaml") as recipe:
            process = self.start("train", "-", "--from", "base", "--metrics", "m.jsonl", "--set",
                                 "train.steps=100000", stdin=recipe)
            self.assertTrue(wait_for(self.folder / "m.jsonl", 3))
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 0, err)
        [line] = [line for line in out.splitlines() if line.startswith("resume ")]
        reported, command = line.split(": ", 1)
        self.assertEqual(reported, "resume   with the same recipe on standard input")
        steps = len(self.losses("m.jsonl")) + 2
        again = subprocess.run(f"{command} --set train.steps={steps} < tuning.yaml", shell=True, cwd=self.folder,
                               env=self.environment, capture_output=True, text=True, timeout=60)
        self.assertEqual(again.returncode, 0, again.stderr)
        self.assertEqual(len(self.losses("m.jsonl")), steps)

    def test_prints_no_command_without_checkpoint_folder(self):
        process = self.start("train", "recipe.yaml", "--metrics", "m.jsonl", "--set", "train.steps=100000")
        self.assertTrue(wait_for(self.folder / "m.jsonl"))
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 0, err)
        self.assertIn("resume   from nothing", out)
        self.assertNotIn("--resume", out)

    def test_checkpoint_supplies_fields_missing_in_recipe(self):
        self.succeed("train", "tuning.yaml", "--from", "base", "--set", "train.steps=3")
        self.succeed("train", "tuning.yaml", "--resume", "tuned", "--set", "train.steps=5")
        self.assertTrue((self.folder / "tuned/step-00000005").is_dir())
        self.refuse("train", "tuning.yaml", "--resume", "tuned", "--set", "train.steps=6", "--set",
                    "model.heads=5", says="model.heads")

    def test_restart_resumes_with_set_at_any_position(self):
        steps = ("--set", "train.steps=1500")
        launcher = self.start("launch", "-n", "2", "--restarts", "1", "--", "train", "--set",
                              "train.checkpoint_every=50", "tuning.yaml", "--from=base",
                              "--metrics", "m.jsonl", *steps)
        deadline = time.time() + 60
        while not list(self.folder.glob("tuned/step-????????")) and time.time() < deadline:
            time.sleep(0.002)
        with open(f"/proc/{launcher.pid}/task/{launcher.pid}/children") as file:
            os.kill(int(file.read().split()[-1]), signal.SIGKILL)
        _, err = launcher.communicate(timeout=120)
        self.assertEqual(launcher.returncode, 0, err)
        self.assertIn("restart 1 of 1", err)
        self.succeed("train", "tuning.yaml", "--from", "base", "--metrics", "whole.jsonl", "--set",
                     "train.checkpoint_folder=whole", *steps)
        self.assertEqual(self.losses("m.jsonl"), self.losses("whole.jsonl"))


class Arguments(ProgramTest):
    def test_reports_empty_path_as_unset_variable(self):
        for option in ("--resume", "--from", "--metrics", "--trace", "--report"):
            self.refuse("train", "recipe.yaml", option, "", says=[option, "empty"])
            self.refuse("train", "recipe.yaml", option + "=", says=option)
        self.refuse("verify", "recipe.yaml", "--resume", "", says=["--resume", "empty"])
        self.refuse("plan", "recipe.yaml", "--json", "", says=["--json", "empty"])
        self.assertEqual(list(self.folder.glob("*.jsonl")), [])


class Streams(ProgramTest):
    def shell(self, command):
        return subprocess.run(["bash", "-c", f"{shlex.quote(PROGRAM)} {command}"], cwd=self.folder,
                              env=self.environment, capture_output=True, text=True, timeout=300)

    def test_output_to_closed_stream_reaches_no_file(self):
        for closed in ("2>&-", ">&-", "<&- >&- 2>&-"):
            with self.subTest(closed):
                done = self.shell(f"train recipe.yaml --metrics m.jsonl {closed}")
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertEqual([step["step"] for step in self.metrics("m.jsonl")],
                                 list(range(1, 9)))
                (self.folder / "m.jsonl").unlink()

    def test_output_to_full_device_is_system_error(self):
        self.succeed("train", "recipe.yaml", "--set", "train.checkpoint_folder=saved")
        verbs = ["--help", "--version", "options", "doctor", "doctor --json",
                 "plan recipe.yaml --estimate", "size parameters 1B", "size embeddings 1T", "verify recipe.yaml",
                 "train recipe.yaml", "generate saved --prompt a --tokens 2",
                 "launch -n 2 options"]
        for verb in verbs:
            with self.subTest(verb):
                done = self.shell(f"{verb} >/dev/full")
                self.assertEqual(done.returncode, 3, done.stderr)
                self.assertIn("standard output", done.stderr)

    def test_refuses_results_on_full_device(self):
        for result in ("train recipe.yaml --metrics", "train recipe.yaml --trace",
                       "train recipe.yaml --report", "plan recipe.yaml --estimate --json"):
            with self.subTest(result):
                done = self.shell(f"{result} /dev/full")
                self.assertEqual(done.returncode, 3, done.stderr)
                self.assertIn("/dev/full", done.stderr)


if __name__ == "__main__":
    unittest.main()
