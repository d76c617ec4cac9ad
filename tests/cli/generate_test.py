"""Tests `strata generate` with our checkpoints and with models of other programs."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import unittest

from strata_program import PROGRAM, ProgramTest

FOLDER = (pathlib.Path(__file__).resolve().parents[3] / "shared" / "data" / "models" / "stories260K")


def generated_story():
    """The first sample of the model's page: greedy, without a prompt."""
    text = (FOLDER / "stories260K.md").read_text(encoding="utf-8")
    block = text[text.index("-t 0.0"):]
    return block[block.index("\n") + 1:block.index("```")].strip()


class Generate(ProgramTest):
    def test_checkpoint_continues_bytes(self):
        self.succeed("train", "recipe.yaml", "--set", "train.checkpoint_folder=c")
        out = self.succeed("generate", "c", "--prompt", "In the", "--tokens", "12")
        self.assertTrue(out.startswith("In the"))
        again = self.succeed("generate", "c", "--prompt", "In the", "--tokens", "12")
        self.assertEqual(out, again)
        self.refuse("generate", "c", says="nothing to continue")
        for other in ("task=recommender", "model.kind=dlrm"):
            self.refuse("generate", "c", "--prompt", "a", "--set", other, says=["only a model of text", "task text"])
        self.refuse("generate", "c", "--prompt", "a", "--set", "data.tokenizer=none",
                    says="tokens have no text")

    @unittest.skipUnless(FOLDER.is_dir(), "stories260K is not at ../shared/data/models")
    def test_formats_question_with_chat_template(self):
        folder = self.folder / "chat"
        shutil.copytree(FOLDER, folder, copy_function=shutil.copyfile)
        greedy = ["--tokens", "20", "--temperature", "0"]
        self.refuse("generate", "chat", "--chat", "Once", says=["[jinja.chat] chat: the tokenizer has no chat template", "--prompt"])
        config = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
        config["chat_template"] = "{{ bos_token }}{% for m in messages %}{{ m.role[0] ~ ': ' ~ m.content ~ '\n' }}{% endfor %}"
        (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
        plain = self.succeed("generate", "chat", "--prompt", "s: Be kind.\nu: Once\n", *greedy)
        chat = self.succeed("generate", "chat", "--chat", "Once", "--system", "Be kind.", *greedy)
        self.assertEqual(plain, "s: Be kind.\nu: Once\n" + chat)
        both = self.succeed("generate", "chat", "--chat", "Once", "--chat", "Twice", "--system", "Be kind.", *greedy)
        self.assertTrue(both.startswith(chat.rstrip("\n") + "\n\n"), both)
        (folder / "chat_template.jinja").write_text("{{ raise_exception('no system') }}", encoding="utf-8")
        self.refuse("generate", "chat", "--chat", "Once", says=["chat_template.jinja:1", "no system"])
        self.refuse("generate", "chat", "--chat", "Once", "--prompt", "a", says="excludes")

    def test_temperature_and_seed_determine_text(self):
        self.succeed("train", "recipe.yaml", "--set", "train.checkpoint_folder=c")

        def text(temperature, seed, *more):
            return self.succeed("generate", "c", "--prompt", "In the", "--tokens", "40",
                                "--temperature", temperature, "--seed", seed, *more)

        self.assertEqual(text("0", "1"), text("0", "2"))
        self.assertEqual(text("1", "1"), text("1", "1"))
        self.assertNotEqual(text("1", "1"), text("1", "2"))
        self.assertNotEqual(text("1", "1"), text("0", "1"))
        self.assertNotEqual(text("1", "1"), text("9", "1"))
        for seed in ("-1", "1.5", "18446744073709551616"):
            code, _, err = self.run_program("generate", "c", "--prompt", "a", "--seed", seed)
            self.assertNotEqual(code, 0)
            self.assertIn(f"0 to 18446744073709551615, got {seed}", err)
        # Random bytes are shown as text, too.
        done = subprocess.run([PROGRAM, "generate", "c", "--prompt", "In the", "--temperature",
                               "9"], cwd=self.folder, stdout=subprocess.PIPE, check=True)
        self.assertIn("\N{REPLACEMENT CHARACTER}", done.stdout.decode("utf-8"))

    def test_every_mesh_generates_equal_text(self):
        self.succeed("train", "recipe.yaml", "--set", "train.checkpoint_folder=c")
        greedy = ["generate", "c", "--prompt", "In the", "--tokens", "30", "--temperature", "0"]
        one = self.succeed(*greedy, "--set", "mesh.pp=1")
        for mesh in (["mesh.pp=3"], ["mesh.tp=2"], ["mesh.pp=2", "mesh.tp=2"],
                     ["mesh.pp=2", "mesh.dp=4", "train.mini_batch=16"]):
            settings = [word for field in mesh for word in ("--set", field)]
            self.assertEqual(self.succeed(*greedy, *settings), one, mesh)
        both = self.succeed("launch", "-n", "2", *greedy, "--set", "mesh.pp=2")
        self.assertEqual(both.count("In the"), 1)
        self.assertIn(one.strip(), both)
        self.refuse(*greedy, "--set", "mesh.pp=100", says="more stages than layers")

    def test_decodes_several_prompts_together(self):
        self.succeed("train", "recipe.yaml", "--set", "train.checkpoint_folder=c")
        greedy = ["generate", "c", "--tokens", "30", "--temperature", "0"]
        prompts = ["In the", "A", "He said unto"]
        alone = [self.succeed(*greedy, "--prompt", prompt) for prompt in prompts]
        repeated = [word for prompt in prompts for word in ("--prompt", prompt)]
        for mesh in ("mesh.pp=1", "mesh.pp=2"):
            self.assertEqual(self.succeed(*greedy, *repeated, "--set", mesh), "\n".join(alone))

    def test_the_least_budget_holds_beyond_the_context(self):
        # The context has 32 tokens: after it, every token computes the whole window.
        self.succeed("train", "recipe.yaml", "--set", "train.checkpoint_folder=c", "--set", "mesh.pp=1")
        command = ("generate", "c", "--prompt", "a", "--tokens", "60", "--temperature", "0")
        text = self.succeed(*command)
        for weights in ("auto", "device"):
            fields = ("--set", f"memory.weights={weights}", "--set")
            error = self.refuse(*command, *fields, "memory.device=1KiB", says="plan.memory")
            least = re.search(r"memory\.device=(\d+)B", error)[1]
            self.assertEqual(self.succeed(*command, *fields, f"memory.device={least}B"), text)

    def test_refuses_empty_folder(self):
        (self.folder / "empty").mkdir()
        self.refuse("generate", "empty", "--prompt", "a", says="empty")


@unittest.skipUnless(FOLDER.is_dir(), "stories260K is not at ../shared/data/models")
class Stories(ProgramTest):
    def test_generates_published_story(self):
        story = generated_story()
        greedy = ["generate", str(FOLDER), "--temperature", "0", "--set", "mesh.threads=1"]
        out = self.succeed(*greedy, "--tokens", "200")
        self.assertGreater(len(out.strip()), 400)
        self.assertEqual(out.strip(), story[:len(out.strip())])
        prompted = self.succeed(*greedy, "--tokens", "20", "--prompt", story[:40])
        self.assertEqual(prompted.strip(), story[:len(prompted.strip())])
        self.assertGreater(len(prompted.strip()), 60)

    def test_prints_text_while_generating(self):
        command = [PROGRAM, "generate", str(FOLDER), "--temperature", "0", "--tokens", "200",
                   "--set", "mesh.threads=1"]
        # Each write is one packet: even a slow reader gets them separately.
        reading, writing = os.pipe2(os.O_DIRECT)
        with open(reading, "rb", buffering=0) as packets, \
             subprocess.Popen(command, stdout=writing, cwd=self.folder) as process:
            os.close(writing)
            pieces = []
            while piece := packets.read(1 << 16):
                pieces.append(piece.decode("utf-8"))  # each piece is valid text
        self.assertEqual(process.returncode, 0)
        self.assertGreater(len(pieces), 2)
        text = "".join(pieces).strip()
        self.assertEqual(text, generated_story()[:len(text)])

    def test_training_encodes_text_with_tokenizer(self):
        options = ["--set", f"data.tokenizer={FOLDER}", "--set", "model.context=16", "--set",
                   "train.checkpoint_folder=c"]
        self.refuse("train", "recipe.yaml", *options, says=["more tokens than the model", "512"])
        options += ["--set", "model.vocab=512"]
        self.succeed("train", "recipe.yaml", *options, "--metrics", "m.jsonl")
        self.assertEqual(len(self.metrics("m.jsonl")), 8)
        out = self.succeed("generate", "c", "--temperature", "0", "--tokens", "4")
        self.assertTrue(out.endswith("\n"))

    def test_refuses_unsupported_tokenizer_by_name(self):
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
