"""Tests hostile input files: each ends in one error that names it, never in a crash or a hang."""

import os
import pathlib
import signal
import time
import unittest

from strata_program import ProgramTest, size_of

SAVE = ["--set", "train.checkpoint_folder=saved"]
TOKENIZER = """{
  "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false},
  "decoder": {"type": "ByteLevel"},
  "model": {"type": "BPE", "merges": [], "vocab": {%s}}}""" % ", ".join(
    f'"{c}": {i}' for i, c in enumerate("Inthebgiwasord.\u0120"))


class HostileFiles(ProgramTest):

    def train(self, *arguments):
        return self.succeed("train", "recipe.yaml", "--set", "train.steps=4", *SAVE, *arguments)

    def tokenizer(self):
        folder = self.folder / "tokenizer"
        folder.mkdir()
        (folder / "tokenizer.json").write_text(TOKENIZER)
        return folder

    def test_refuses_paths_without_file(self):
        os.mkfifo(self.folder / "pipe")
        os.symlink("loop", self.folder / "loop")
        for path in ("pipe", "loop", "x" * 300, "/dev/zero", "."):
            says = path[:60]  # a long path is quoted by its beginning
            self.refuse("train", "recipe.yaml", "--set", f"data.train={path}", says=says)
            self.refuse("train", "recipe.yaml", "--set", f"data.tokenizer={path}", says=says)
            self.refuse("generate", path, "--prompt", "a", says=says)

    def test_refuses_hostile_models_of_torch_export(self):
        os.mkfifo(self.folder / "pipe")
        os.symlink("loop", self.folder / "loop")
        (self.folder / "text.pt2").write_text("no archive")
        (self.folder / "end.pt2").write_bytes(b"PK\x05\x06" + bytes(18))  # an archive without files
        for path in ("pipe", "loop", "/dev/zero", ".", "text.pt2", "end.pt2", "missing.pt2"):
            for verb in ("train", "plan"):
                self.refuse(verb, "--model", path, "--set", "data.inputs=x.npy", "--set", "data.targets=y.npy", says=path)

    def test_refuses_hostile_tokenizers(self):
        folder = self.tokenizer()
        options = ["--set", f"data.tokenizer={folder}", "--set", "train.steps=1"]
        self.succeed("train", "recipe.yaml", *options)
        (folder / "tokenizer_config.json").mkdir()
        self.refuse("train", "recipe.yaml", *options, says=["tokenizer_config.json", "a folder"])
        (folder / "tokenizer_config.json").rmdir()
        self.environment["TMPDIR"] = str(self.folder / "missing")
        self.refuse("train", "recipe.yaml", *options, says="TMPDIR", code=3)
        del self.environment["TMPDIR"]
        (folder / "tokenizer.json").write_text("[" * 100_000 + "]" * 100_000)
        self.refuse("train", "recipe.yaml", *options, says=["tokenizer.json", "deep"])

    def test_refuses_hostile_checkpoints(self):
        folder = self.tokenizer()
        self.train("--set", f"data.tokenizer={folder}")
        saved = self.folder / "saved" / "step-00000004"
        content = (saved / "tokenizer.json").read_text()
        (saved / "tokenizer.json").write_text(content.replace('"I": 0, "n": 1', '"I": 1, "n": 0'))
        self.refuse("generate", "saved", "--prompt", "In", says=["tokenizer.json", "checksum"])
        (saved / "manifest.json").write_text("{" * 100_000)
        self.refuse("generate", "saved", "--prompt", "In", says=["manifest.json", "deep"])

    def test_refuses_second_run_in_checkpoint_folder(self):
        first = self.start("train", "recipe.yaml", *SAVE, "--set", "train.steps=100000",
                           "--metrics", "first.jsonl")
        while size_of(self.folder / "first.jsonl") == 0:
            if first.poll() is not None:
                self.fail(f"the first run has ended: {first.stderr.read()}")
            time.sleep(0.02)
        # A stopped process keeps its lock and cannot end, however long the second run takes to
        # start.
        first.send_signal(signal.SIGSTOP)
        self.assertEqual(os.waitid(os.P_PID, first.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT).si_code,
                         os.CLD_STOPPED, "the first run has ended")
        self.refuse("train", "recipe.yaml", *SAVE, says=["saved", f"process {first.pid}", "host"])
        first.kill()
        first.communicate()
        self.train()

    def test_refuses_unwritable_outputs_before_training(self):
        (self.folder / "file").write_text("")
        for option in ("--metrics", "--trace", "--report"):
            self.refuse("train", "recipe.yaml", option, "file/x", says=[option, "file/x"])
        self.refuse("train", "recipe.yaml", "--set", "train.checkpoint_folder=file/x", says="file")
        self.refuse("train", "recipe.yaml", "--set", "train.tensorboard=file/x", says="file")

    def test_refuses_other_model_with_both_shapes(self):
        self.train()
        for field, value, shape in (("layers", 2, "no such weight"), ("layers", 6, "no such weight"),
                                    ("width", 64, "[96, 64]")):
            for option in ("--resume", "--from"):
                self.refuse("train", "recipe.yaml", option, "saved", "--set", "train.steps=6", "--set",
                            f"model.{field}={value}",
                            says=["in the recipe's model", "in the checkpoint", f"model.{field}="])

    def test_other_mini_batch_resumes_at_data_position(self):
        self.train()
        self.succeed("train", "recipe.yaml", "--resume", "saved", "--metrics", "rest.jsonl",
                     "--set", "train.steps=6", "--set", "train.mini_batch=4")
        self.assertEqual([line["samples_seen"] for line in self.metrics("rest.jsonl")], [36, 40])


if __name__ == "__main__":
    unittest.main()
