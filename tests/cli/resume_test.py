"""Tests that a resumed run equals the uninterrupted one, for any kind of stop and any mesh."""

import signal
import time
import unittest

from strata_program import ProgramTest

SAVE = ["--set", "train.checkpoint_folder=saved", "--set", "train.checkpoint_every=1",
        "--set", "train.keep_checkpoints=0"]


class Resume(ProgramTest):
    def train_whole(self):
        self.succeed("train", "recipe.yaml", "--metrics", "whole.jsonl", *SAVE)
        return self.losses("whole.jsonl")

    def test_equals_uninterrupted_run_on_any_number_of_stages(self):
        whole = self.train_whole()
        final = (self.folder / "saved").glob("step-*8")
        self.assertEqual(len(list(final)), 1)
        for pp, schedule in ((1, "gpipe"), (2, "1f1b"), (3, "interleaved"), (4, "gpipe")):
            stages = ["--set", f"mesh.pp={pp}", "--set", f"mesh.schedule={schedule}"]
            if schedule == "interleaved":
                stages += ["--set", "mesh.virtual_stages=2"]
            name = f"resumed{pp}.jsonl"
            self.succeed("train", "recipe.yaml", "--metrics", name, "--resume",
                         "saved/step-00000003", *stages)
            self.assertEqual(self.losses(name), whole[3:], f"{pp} stages, {schedule}")

    def test_resumes_on_any_mesh_from_other_mesh(self):
        def options(mesh):
            return [word for field in mesh.split() for word in ("--set", "mesh." + field)]

        self.succeed("train", "recipe.yaml", "--metrics", "whole.jsonl", *SAVE,
                     *options("pp=2 dp=2 zero=2"))
        whole = self.metrics("whole.jsonl")[3:]
        meshes = ("pp=2 dp=2 zero=2", "pp=1 dp=2", "pp=1 dp=2 zero=1", "pp=2 dp=2 zero=3",
                  "pp=3 dp=2 zero=3", "pp=2 dp=2 virtual_stages=2 schedule=interleaved",
                  "pp=1", "pp=3", "pp=1 dp=4 zero=3", "pp=1 dp=4 zero=3 shard_ranks=2", "pp=1 tp=2",
                  "pp=2 tp=2 sequence_parallel=true", "pp=1 dp=2 tp=2 zero=3",
                  "pp=2 dp=2 tp=2 zero=1")
        for number, mesh in enumerate(meshes):
            with self.subTest(mesh=mesh):
                name = f"mesh{number}.jsonl"
                self.succeed("train", "recipe.yaml", "--metrics", name, "--resume",
                             "saved/step-00000003", *options(mesh))
                resumed = self.metrics(name)
                self.assertEqual(len(resumed), len(whole))
                if "dp=2" in mesh and "tp" not in mesh:  # only then all sums have the same order
                    self.assertEqual([line["loss_hex"] for line in resumed],
                                     [line["loss_hex"] for line in whole])
                for ours, theirs in zip(resumed, whole):
                    self.assertLess(abs(ours["loss"] - theirs["loss"]), 1e-4 * theirs["loss"])

    def test_ctrl_c_finishes_step_saves_and_prints_resume_command(self):
        constant = ["--set", "train.decay=constant"]  # the same rate for any length of the run
        process = self.start("train", "recipe.yaml", "--metrics", "part.jsonl", "--set",
                             "train.checkpoint_folder=part", *constant, "--set", "train.steps=100000")
        self.await_steps("part.jsonl")
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 0, err)
        done = len(self.losses("part.jsonl"))
        self.assertIn(f"--resume part/step-{done:08}", out)
        steps = [*constant, "--set", f"train.steps={done + 20}"]
        self.succeed("train", "recipe.yaml", "--metrics", "part.jsonl", "--resume", "part", *steps)
        self.succeed("train", "recipe.yaml", "--metrics", "whole.jsonl", *steps)
        self.assertEqual(self.losses("part.jsonl"), self.losses("whole.jsonl"))

    def test_run_without_saves_reports_it_before_first_step(self):
        says = "saved    nothing: the model is lost at the end unless train.checkpoint_folder"
        self.assertNotIn(says, self.succeed("train", "recipe.yaml", *SAVE))
        for resumed in ([], ["--resume", "saved/step-00000003"]):
            out = self.succeed("train", "recipe.yaml", *resumed)
            self.assertIn(says, out)
            self.assertLess(out.index(says), out.index("step     measured"))

    def test_reports_source_of_weights_and_changes_of_resumed_run(self):
        self.assertIn("weights  random, of train.seed 1\n",
                      self.succeed("train", "recipe.yaml", *SAVE))
        self.assertIn("weights  of saved\n",
                      self.succeed("train", "recipe.yaml", "--from", "saved"))
        (self.folder / "other.txt").write_text("And the word was another one. " * 400)
        out = self.succeed("train", "recipe.yaml", "--resume", "saved/step-00000003", "--set",
                           "data.train=other.txt")
        self.assertIn("resumed  step 3 of saved/step-00000003\n"
                      "changed  data.train text.txt -> other.txt\n", out)
        self.refuse("train", "recipe.yaml", "--resume", "saved", "--set",
                    "train.optimizer.kind=sgd",
                    says=["another optimizer's states", "train.optimizer.kind=adamw"])

    def test_reports_warmup_longer_than_run(self):
        for warmup in ("2", "8"):  # of 8 steps
            self.assertNotIn("rate ", self.succeed("train", "recipe.yaml", "--set",
                                                   f"train.warmup={warmup}"))
        for verb in (["train"], ["plan", "--estimate"]):
            out = self.succeed(*verb, "recipe.yaml", "--set", "train.warmup=80")
            self.assertRegex(out, "rate +rises to 10.0 % of train.optimizer.learning_rate: "
                             "train.warmup 80 is longer than the run")

    def test_kill_at_any_moment_keeps_last_checkpoint_loadable(self):
        whole = self.train_whole()
        for moment in range(6):
            folder = f"killed{moment}"
            process = self.start("train", "recipe.yaml", "--set", f"train.checkpoint_folder={folder}",
                                 "--set", "train.checkpoint_every=1")
            deadline = time.time() + 60
            while not list((self.folder / folder).glob("step-*")) and time.time() < deadline:
                time.sleep(0.001)
            time.sleep(0.004 * moment)
            process.kill()
            process.communicate()
            complete = [path for path in (self.folder / folder).glob("step-????????")]
            if not complete:
                continue  # killed before the first checkpoint was complete
            name = f"{folder}.jsonl"
            self.succeed("train", "recipe.yaml", "--metrics", name, "--resume", folder)
            resumed = self.losses(name)
            self.assertEqual(resumed, whole[len(whole) - len(resumed):])

    def test_refuses_corrupt_checkpoint_by_name(self):
        self.train_whole()
        victim = next((self.folder / "saved" / "step-00000008").glob("model*.safetensors"))
        content = bytearray(victim.read_bytes())
        content[-5] ^= 1
        victim.write_bytes(content)
        self.refuse("train", "recipe.yaml", "--resume", "saved/step-00000008", says=victim.name)
        victim.write_bytes(content[:100])
        self.refuse("generate", "saved/step-00000008", "--prompt", "In", says=victim.name)
        victim.unlink()
        self.refuse("train", "recipe.yaml", "--resume", "saved/step-00000008", says=victim.name)
        self.refuse("train", "recipe.yaml", "--resume", "nowhere", says="nowhere")

    def test_refuses_new_run_among_other_checkpoints(self):
        self.train_whole()
        self.refuse("train", "recipe.yaml", *SAVE, says="--resume saved")
        self.refuse("train", "recipe.yaml", *SAVE, "--resume", "saved/step-00000003",
                    says="later steps")

    def test_generates_equal_text_on_any_number_of_stages(self):
        self.train_whole()
        texts = {self.succeed("generate", "saved", "--prompt", "In the", "--bytes", "40", "--set",
                              f"mesh.pp={pp}") for pp in (1, 2, 3)}
        self.assertEqual(len(texts), 1)
        self.assertTrue(texts.pop().startswith("In the"))


if __name__ == "__main__":
    unittest.main()
