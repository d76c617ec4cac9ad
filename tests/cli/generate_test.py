"""`strata generate` writes text with checkpoints and with models of others."""

import json
import pathlib
import shutil
import unittest

from strata_program import ProgramTest

FOLDER = (pathlib.Path(__file__).resolve().parents[3] / "shared" / "data" / "models" / "stories260K")


def told_story():
    """The first sample of the model's own page: greedy, from nothing."""
    text = (FOLDER / "stories260K.md").read_text(encoding="utf-8")
    block = text[text.index("-t 0.0"):]
    return block[block.index("\n") + 1:block.index("```")].strip()


class Generate(ProgramTest):
    def test_a_checkpoint_continues_bytes(self):
        self.succeed("train", "recipe.yaml", "--set", "train.checkpoint_folder=c")
        out = self.succeed("generate", "c", "--prompt", "In the", "--tokens", "12")
        self.assertTrue(out.startswith("In the"))
        again = self.succeed("generate", "c", "--prompt", "In the", "--tokens", "12")
        self.assertEqual(out, again)
        self.refuse("generate", "c", says="nothing to continue")
        self.refuse("generate", "c", "--prompt", "a", "--set", "data.tokenizer=none",
                    says="tokens have no text")

    def test_a_folder_of_nothing_is_refused(self):
        (self.folder / "empty").mkdir()
        self.refuse("generate", "empty", "--prompt", "a", says="empty")


@unittest.skipUnless(FOLDER.is_dir(), "stories260K is not at ../shared/data/models")
class Stories(ProgramTest):
    def test_the_published_story_comes_out(self):
        story = told_story()
        greedy = ["generate", str(FOLDER), "--temperature", "0", "--set", "mesh.threads=1"]
        out = self.succeed(*greedy, "--tokens", "200")
        self.assertGreater(len(out.strip()), 400)
        self.assertEqual(out.strip(), story[:len(out.strip())])
        prompted = self.succeed(*greedy, "--tokens", "20", "--prompt", story[:40])
        self.assertEqual(prompted.strip(), story[:len(prompted.strip())])
        self.assertGreater(len(prompted.strip()), 60)

    def test_training_reads_text_through_its_tokenizer(self):
        options = ["--set", f"data.tokenizer={FOLDER}", "--set", "model.context=16", "--set",
                   "train.checkpoint_folder=c"]
        self.refuse("train", "recipe.yaml", *options, says=["more tokens than the model", "512"])
        options += ["--set", "model.vocab=512"]
        self.succeed("train", "recipe.yaml", *options, "--metrics", "m.jsonl")
        self.assertEqual(len(self.metrics("m.jsonl")), 8)
        out = self.succeed("generate", "c", "--temperature", "0", "--tokens", "4")
        self.assertTrue(out.endswith("\n"))

    def test_a_tokenizer_that_cannot_be_honoured_is_refused_by_name(self):
        shutil.copytree(FOLDER, self.folder / "model")
        (self.folder / "model").chmod(0o755)
        path = self.folder / "model" / "tokenizer.json"
        path.chmod(0o644)
        file = json.loads(path.read_text())
        file["pre_tokenizer"] = {"type": "BertPreTokenizer"}
        path.write_text(json.dumps(file))
        self.refuse("generate", "model", says=["pre_tokenizer", "BertPreTokenizer"])


if __name__ == "__main__":
    unittest.main()
