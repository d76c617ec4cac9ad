"""Tests runs that end at a target: their clock, their files, and comparisons of them."""

import importlib.util
import json
import pathlib
import signal
import subprocess
import sys
import unittest

from strata_program import ProgramTest

RULES = pathlib.Path(__file__).resolve().parents[2] / "bench/time_to_target/rules.yaml"
VALIDATED = ("--set", "train.validate_every=2", "--set", "train.decay=constant", "--set", "train.steps=60")
RECIPE = {"model": {"kind": "dlrm", "bottom": [8, 4], "top": [8]},
          "data": {"train": "log.csv", "label": "click", "numeric": [{"name": "age"}],
                   "categorical": [{"name": "user", "width": 4}], "validation_fraction": 0.2},
          "train": {"steps": 60, "mini_batch": 48, "micro_batch": 48, "validate_every": 2}, "mesh": {"threads": 1}}


class Target(ProgramTest):
    def run_of(self, name):
        return json.loads((self.folder / name).read_text())

    def events(self, name):
        lines = (self.folder / name).read_text().splitlines()
        self.assertTrue(all(line.startswith(":::MLLOG {") for line in lines))
        return [json.loads(line.removeprefix(":::MLLOG ")) for line in lines]

    def write_clicks(self):
        """The user decides about the click."""
        lines = ["click,age,user"] + [f"{int(i * i % 23 > 11)},{i % 7},{i * i % 23}" for i in range(1200)]
        (self.folder / "log.csv").write_text("\n".join(lines) + "\n")
        (self.folder / "clicks.yaml").write_text(json.dumps(RECIPE))

    def check_log(self, *options):
        if importlib.util.find_spec("mlperf_logging") is None:
            self.skipTest("MLCommons' checker (mlperf-logging) is not installed")
        done = subprocess.run([sys.executable, "-m", "mlperf_logging.compliance_checker", "--usage", "training", *options, "out.log"],
                              cwd=self.folder, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("SUCCESS", done.stdout + done.stderr)

    def test_run_ends_at_the_first_validation_that_reaches_it(self):
        self.succeed("train", "recipe.yaml", *VALIDATED, "--metrics", "whole.jsonl")
        whole = self.metrics("whole.jsonl")
        validated = [line for line in whole if "validation_loss" in line]
        wanted = validated[4]["validation_loss"] + 1e-9
        expected = next(line["step"] for line in validated if line["validation_loss"] <= wanted)
        out = self.succeed("train", "recipe.yaml", *VALIDATED, "--target", f"val_loss<={wanted!r}", "--metrics", "short.jsonl",
                           "--run-json", "run.json", "--set", "train.checkpoint_folder=saved")
        self.assertIn("reached: ", out)
        steps = self.metrics("short.jsonl")
        self.assertEqual([line["loss_hex"] for line in steps], [line["loss_hex"] for line in whole[:expected]])
        self.assertTrue((self.folder / f"saved/step-{expected:08}").is_dir())
        run = self.run_of("run.json")
        self.assertEqual(run["status"], "reached")
        self.assertEqual([each["step"] for each in run["validations"]], list(range(2, expected + 1, 2)))
        self.assertEqual(run["validations"][-1]["val_loss"], steps[-1]["validation_loss"])
        self.assertEqual(run["validations"][-1]["samples"], 8 * expected)
        seconds = [each["seconds"] for each in run["validations"]]
        self.assertEqual(seconds, sorted(seconds))
        self.assertGreaterEqual(run["seconds"], sum(line["step_seconds"] for line in steps))

    def test_a_missed_target_is_aborted(self):
        code, out, _ = self.run_program("train", "recipe.yaml", "--set", "train.validate_every=4", "--target", "val_loss<=0.01", "--mllog", "out.log",
                                        "--run-json", "run.json", "--set", "train.checkpoint_folder=saved")
        self.assertEqual(code, 5)
        self.assertRegex(out, r"target   val_loss<=0\.01 missed: \d\.\d+ after the last step, 8")
        self.assertEqual(self.run_of("run.json")["status"], "missed")
        self.assertEqual(self.events("out.log")[-1]["metadata"]["status"], "aborted")
        self.assertTrue((self.folder / "saved/step-00000008").is_dir())

    def test_checker_accepts_the_log(self):
        self.write_clicks()
        self.succeed("train", "clicks.yaml", "--target", "auc>=0.7", "--mllog", "out.log", "--benchmark", "bert")
        events = self.events("out.log")
        at = [event["key"] for event in events].index
        self.assertLess(at("run_start"), at("train_samples"))
        self.assertLess(at("init_start"), at("init_stop"))
        self.assertEqual(next(event["value"] for event in events if event["key"] == "train_samples"), 960)
        self.assertEqual(next(event["value"] for event in events if event["key"] == "eval_samples"), 240)
        times = [event["time_ms"] for event in events]
        self.assertEqual(times, sorted(times))
        reached = [event["value"] for event in events if event["key"] == "eval_accuracy"]
        self.assertTrue(all(value < 0.7 for value in reached[:-1]))
        self.assertGreaterEqual(reached[-1], 0.7)
        self.check_log("--ruleset", "1.1.0")
        self.check_log("--ruleset", "6.1.0", "--config", str(RULES))

    def test_a_resumed_run_has_one_log_and_one_time(self):
        arguments = ("recipe.yaml", "--set", "train.validate_every=2", "--set", "train.decay=constant", "--target", "val_loss<=0.5", "--mllog",
                     "out.log", "--run-json", "run.json", "--set", "train.checkpoint_folder=saved")
        process = self.start("train", *arguments, "--set", "train.steps=100000", "--metrics", "m.jsonl")
        self.await_steps("m.jsonl")
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 0)
        self.assertIn("--target 'val_loss<=0.5' --run-json run.json --mllog out.log", out)
        before = self.run_of("run.json")
        self.assertEqual(before["status"], "stopped")
        steps = self.metrics("m.jsonl")[-1]["step"]
        code, _, err = self.run_program("train", *arguments, "--set", f"train.steps={steps + 4}", "--resume", "saved")
        self.assertEqual(code, 5, err)
        after = self.run_of("run.json")
        self.assertEqual(after["restarts"], 1)
        self.assertEqual(after["began_milliseconds"], before["began_milliseconds"])
        self.assertGreater(after["seconds"], before["seconds"])
        validated = [each["step"] for each in after["validations"]]
        self.assertEqual(validated, sorted(set(validated)))
        self.check_log("--ruleset", "6.1.0", "--config", str(RULES))

    def test_forecast_is_printed(self):
        _, _, err = self.run_program("train", "recipe.yaml", *VALIDATED, "--target", "val_loss<=0.1")
        self.assertRegex(err, r"target   val_loss<=0\.1, now \d\.\d{4}: in .+ \(.+ to .+\)")

    def test_targets_that_nothing_can_reach_are_refused(self):
        every = ("--set", "train.validate_every=2")
        self.refuse("train", "recipe.yaml", "--target", "val_loss<=1", says=["train.target", "train.validate_every"])
        self.refuse("train", "recipe.yaml", *every, "--target", "loss=1", says=["--set: train.target: it is no target", "val_loss<=1.5"])
        self.refuse("train", "recipe.yaml", *every, "--target", "accuracy>=0.9", says=["do not compute", "one of val_loss"])
        self.refuse("train", "recipe.yaml", *every, "--target", "val_loss<=1", "--set", "data.validation_fraction=0", says="no validation samples")
        self.succeed("train", "recipe.yaml", "--run-json", "run.json", "--mllog", "out.log", "--set", "train.checkpoint_folder=saved")
        results = [(self.folder / name).read_text() for name in ("run.json", "out.log")]
        self.refuse("train", "recipe.yaml", "--run-json", "run.json", "--mllog", "out.log", "--set", "train.checkpoint_folder=saved", says="later")
        self.assertEqual([(self.folder / name).read_text() for name in ("run.json", "out.log")], results)
        (self.folder / "notes").write_text("my notes\n")
        self.refuse("train", "recipe.yaml", "--mllog", "notes", says=["notes", "no log"])
        self.assertEqual((self.folder / "notes").read_text(), "my notes\n")

    def test_compares_two_sets(self):
        for name, seconds in (("a/1", 10.1), ("a/2", 10.3), ("b/1", 20.4), ("b/2", 20.0), ("c/1", 1.0)):
            self.succeed("train", "recipe.yaml", "--set", "train.steps=1", "--run-json", "run.json")
            path = self.folder / (name + ".json")
            path.parent.mkdir(exist_ok=True)
            path.write_text(json.dumps({**self.run_of("run.json"), "seconds": seconds, "target": "auc>=1" if name == "c/1" else ""}))
        out = self.succeed("compare", "a", "b")
        self.assertRegex(out, r"a is 1\.98 times as fast as b \(p 0\.00\d+\)")
        self.assertIn("one run says nothing", self.succeed("compare", "a/1.json", "b"))
        self.refuse("compare", "a", "c", says="different targets")
        (self.folder / "d").mkdir()
        (self.folder / "d/1.json").write_text(json.dumps({**self.run_of("run.json"), "status": "running"}))
        self.refuse("compare", "a", "d", says="has not ended")
        self.refuse("compare", "a", "text.txt", says=["text.txt", "--run-json"])
        self.refuse("compare", "a", "cache", says="has no runs")


if __name__ == "__main__":
    unittest.main()
