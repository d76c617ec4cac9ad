"""Compares strata.plan(), train() and generate() with the program."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import textwrap
import unittest

from package import import_strata

strata = import_strata()

RECIPE = {
    "model": {"kind": "gpt", "layers": 2, "width": 32, "heads": 2, "vocab": 256, "context": 16},
    "data": {"train": "text", "validation_fraction": 0.2},
    "train": {"steps": 6, "mini_batch": 4, "micro_batch": 2, "warmup": 1, "validation_samples": 4, "checkpoint_folder": "saved"},
    "mesh": {"pp": 2, "threads": 1},
}


def program(*words):
    return subprocess.run([os.environ["STRATA_PROGRAM"], *words], capture_output=True, text=True, check=True).stdout


class RecipesTest(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(scratch.name)
        pathlib.Path("text").write_text(" ".join(f"in the beginning were {i**3} words." for i in range(200)))
        pathlib.Path("recipe.yaml").write_text(json.dumps(RECIPE))

    def test_trains_as_the_program_does(self):
        program("train", "recipe.yaml", "--metrics", "metrics", "--set", "train.checkpoint_folder=other")
        expected = [json.loads(line) for line in pathlib.Path("metrics").read_text().splitlines()]
        seen = []
        for recipe in ("recipe.yaml", pathlib.Path("recipe.yaml"), RECIPE):
            result = strata.train(recipe, {"train.checkpoint_folder": f"saved{len(seen)}"}, on_step=seen.append, progress=False)
            self.assertEqual([step["loss_hex"] for step in result.steps], [step["loss_hex"] for step in expected])
        self.assertEqual(len(seen), 18)
        self.assertFalse(result.stopped)
        self.assertIn("step-00000006", result.checkpoint)
        self.assertIn(f"{result.losses[-1]:.4f}", repr(result))
        self.assertGreater(result.validation_loss, 0)
        self.assertIsNone(result.target_reached)
        for target, reached in (("val_loss<=9", True), ("val_loss<=0.1", False)):
            ended = strata.train(RECIPE, {"train.target": target, "train.validate_every": 2, "train.checkpoint_folder": f"ended{reached}"}, progress=False)
            self.assertIs(ended.target_reached, reached)
            self.assertEqual(len(ended.steps), 2 if reached else 6)

    def test_resumes(self):
        whole = strata.train(RECIPE, progress=False)
        strata.train(RECIPE, {"train.steps": 3, "train.decay": "constant", "train.checkpoint_folder": "half"}, progress=False)
        constant = strata.train(RECIPE, {"train.decay": "constant", "train.checkpoint_folder": "all"}, progress=False)
        rest = strata.train(RECIPE, {"train.decay": "constant", "train.checkpoint_folder": "half"}, resume="half", progress=False)
        self.assertEqual(rest.losses, constant.losses[3:])
        self.assertNotEqual(constant.losses, whole.losses)
        begun = strata.train(RECIPE, {"train.steps": 1, "train.checkpoint_folder": ""}, from_="half", progress=False)
        self.assertLess(begun.losses[0], whole.losses[0])
        without_model = {name: fields for name, fields in RECIPE.items() if name != "model"}
        rest = strata.train(without_model, {"train.decay": "constant", "train.checkpoint_folder": ""}, resume="half/step-00000003", from_="saved", progress=False)
        self.assertEqual(rest.losses, constant.losses[3:], "the model comes from the checkpoint, and resume goes before from_")

    def test_later_checkpoints_are_kept(self):
        strata.train(RECIPE, progress=False)
        with self.assertRaisesRegex(strata.UserError, "step-00000006|later"):
            strata.train(RECIPE, {"train.steps": 3}, progress=False)

    def test_writes_tensorboard(self):
        strata.train(RECIPE, {"train.tensorboard": "events"}, progress=False)
        self.assertEqual(len(list(pathlib.Path("events").iterdir())), 1)

    def test_plans_as_the_program_does(self):
        program("plan", "recipe.yaml", "--estimate", "--json", "plan.json")
        expected = json.loads(pathlib.Path("plan.json").read_text())
        plan = strata.plan("recipe.yaml", measure=False)
        for rank in expected["ranks"]:
            del rank["time"]  # of the program alone
        self.assertEqual(plan.json["ranks"], expected["ranks"])
        self.assertEqual(plan.json["step_seconds"], expected["step_seconds"])
        self.assertIn("rank 1: ", repr(plan))
        self.assertIn("<html", plan.html)
        self.assertEqual(len(strata.plan(RECIPE, {"mesh.pp": 1}, measure=False).json["ranks"]), 1)

    def test_generates_as_the_program_does(self):
        strata.train(RECIPE, progress=False)
        expected = program("generate", "saved", "--prompt", "In the", "--tokens", "12", "--seed", "3")
        pieces = []
        text = strata.generate("saved", "In the", tokens=12, seed=3, on_text=lambda index, piece: pieces.append(piece))
        self.assertEqual("In the" + text + "\n", expected)
        self.assertEqual("".join(pieces), text)
        self.assertEqual(len(strata.generate("saved", ["In", "the"], tokens=3)), 2)

    def test_writes_the_report(self):
        strata.train(RECIPE, report="report.html", progress=False)
        page = pathlib.Path("report.html").read_text()
        self.assertIn("GPT", page)
        self.assertIn("loss", page)

    def test_errors_are_exceptions_with_parts(self):
        with self.assertRaises(strata.UserError) as refused:
            strata.train({"model": {"kind": "gpt", "layrs": 3}})
        self.assertEqual(refused.exception.fix, "did you mean 'model.layers'?")
        self.assertEqual(refused.exception.operation, "base.options")
        self.assertIn("unknown field 'model.layrs'", str(refused.exception))
        with self.assertRaises(FileNotFoundError):
            strata.plan("nothing.yaml")
        with self.assertRaises(strata.UserError):
            strata.generate("nothing")
        with self.assertRaises(strata.UserError):
            strata.train(RECIPE, {"data.train": "nothing"}, progress=False)

    def test_embeddings_of_a_checkpoint(self):
        lines = ["click,age,user,word"] + [f"{i % 3 // 2},{i % 7},{i * i % 23},{('sun', 'moon', 'sky')[i % 3]}" for i in range(240)]
        pathlib.Path("log.csv").write_text("\n".join(lines) + "\n")
        recipe = {"model": {"kind": "dlrm", "bottom": [8, 4], "top": [8]},
                  "data": {"train": "log.csv", "label": "click", "numeric": [{"name": "age"}],
                           "categorical": [{"name": "user", "width": 4, "ids": "number"}, {"name": "word", "width": 4}], "validation_fraction": 0},
                  "train": {"steps": 5, "mini_batch": 48, "micro_batch": 48, "checkpoint_folder": "rows"}, "mesh": {"threads": 1}}
        result = strata.train(recipe, progress=False)
        for checkpoint in ("rows", result.checkpoint):
            tables = strata.load_embeddings(checkpoint)
            self.assertEqual(list(tables), ["user", "word"])
            users, words = tables["user"], tables["word"]
            self.assertEqual(users.ids.tolist(), sorted({i * i % 23 for i in range(240)}))
            self.assertEqual(len(words), 3)
            self.assertEqual(tuple(users.vectors.shape), (len(users), 4))
            for name, ids in (("user", users.ids), ("word", words.ids)):
                for value in ids.tolist():
                    expected = json.loads(program("row", "rows", name, str(value), "--json"))["value"]
                    self.assertEqual(tables[name][value].tolist(), [float(number) for number in expected])
            for text in ("sun", "moon", "sky"):
                self.assertIn(json.loads(program("row", "rows", "word", text, "--text", "--json"))["id"], words)
            self.assertTrue(users[[4, 0, 4]].equal(users.vectors[[users.ids.tolist().index(value) for value in (4, 0, 4)]]))
            self.assertEqual(tuple(users[[]].shape), (0, 4))
            self.assertNotIn(5, users)
            self.assertNotIn(-1, users)
            with self.assertRaises(TypeError):
                users[1.5]
            with self.assertRaisesRegex(KeyError, "5"):
                users[[0, 5]]
        strata.train(RECIPE, progress=False)
        with self.assertRaisesRegex(strata.UserError, "no tables of embeddings"):
            strata.load_embeddings("saved")

    def test_exception_of_the_callback_ends_the_run(self):
        def fail(record):
            raise KeyError("mine")

        with self.assertRaisesRegex(KeyError, "mine"):
            strata.train(RECIPE, {"train.steps": 100000}, on_step=fail, progress=False)

    def test_interrupt_saves_a_checkpoint(self):
        script = textwrap.dedent("""
            import strata
            try:
                strata.train("recipe.yaml", {"train.steps": 1000000}, on_step=lambda record: print("step", flush=True), progress=False)
            except KeyboardInterrupt:
                print("interrupted")
        """)
        process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
        self.assertEqual(process.stdout.readline(), "step\n")
        process.send_signal(signal.SIGINT)
        rest, _ = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 0)
        self.assertTrue(rest.endswith("interrupted\n"))
        self.assertTrue(list(pathlib.Path("saved").glob("step-*")))

    def test_module_is_the_program(self):
        done = subprocess.run([sys.executable, "-m", "strata", "--version"], capture_output=True, text=True, check=True)
        self.assertEqual(done.stdout, program("--version"))
        done = subprocess.run([sys.executable, "-m", "strata", "train", "nothing.yaml"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 2)

    def test_progress_without_a_terminal_is_a_line_now_and_then(self):
        script = "import strata; strata.train('recipe.yaml')"
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
        lines = done.stderr.splitlines()
        self.assertRegex(lines[0], r"^step 1/6  loss 5\.\d+  [\d.]+ k? ?tokens/s  ")
        self.assertRegex(lines[-1], r"^step 6/6  loss ")
        self.assertTrue(any(line.startswith("saved saved/step-") for line in lines))


if __name__ == "__main__":
    unittest.main()
