"""Compares weights in 8 and 4 bits, and what is generated and evaluated with them, with a rounding by PyTorch."""

import itertools
import json
import os
import pathlib
import subprocess
import tempfile
import unittest

from oracle import import_transformers, parity_model

transformers = import_transformers()
import torch  # noqa: E402

SIZES = dict(vocab_size=256, bos_token_id=None, eos_token_id=None)
MODELS = {
    "gpt2": transformers.GPT2Config(n_embd=44, n_layer=2, n_head=2, n_positions=64, **SIZES),
    "llama": transformers.LlamaConfig(hidden_size=48, intermediate_size=70, num_hidden_layers=2, num_attention_heads=4,
                                      num_key_value_heads=2, max_position_embeddings=64, **SIZES),
}
# Names of a block's matrices; GPT-2 stores [in, out].
MATRICES = {"gpt2": ("c_attn.weight", "c_proj.weight", "c_fc.weight"), "llama": ("_proj.weight",)}


def int8(weight):
    """The values of a weight [out, in] in 8 bits, a scale a row, to nearest even."""
    scale = weight.abs().amax(1, keepdim=True) / 127
    q = torch.where(scale > 0, torch.round(weight / scale).clamp(-127, 127), 0)
    return q * scale


def int4(weight):
    """The values in 4 bits, a scale and a minimum for 32 terms of a row."""
    groups = []
    for group in weight.split(32, 1):
        least, most = group.aminmax(dim=1, keepdim=True)
        minimum, scale = least.half().float(), ((most - least) / 15).half().float()
        q = torch.where(scale > 0, torch.round((group - minimum) / scale).clamp(0, 15), 0)
        groups.append(q * scale + minimum)
    return torch.cat(groups, 1)


ROUNDINGS = {"int8": int8, "int4": int4}


def round_blocks(model, name, rounded):
    for key, parameter in model.named_parameters():
        if key.endswith(MATRICES[name]):
            data = parameter.data
            parameter.data = rounded(data.T).T.contiguous() if name == "gpt2" else rounded(data)


class Quantised(unittest.TestCase):

    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)
        (self.folder / "text.txt").write_text("In the beginning was the word. " * 100)

    def make(self, name, rounding):
        """A folder with a model, and one with its blocks' matrices rounded."""
        model = transformers.AutoModelForCausalLM.from_config(MODELS[name]).eval()
        generator = torch.Generator().manual_seed(1)
        for parameter in model.parameters():
            parameter.data.normal_(0, 0.2, generator=generator)
            if parameter.dim() == 2:
                parameter.data[3, 4] = 7  # an outlier
                parameter.data[5], parameter.data[:, 6] = 0, 0
        model.save_pretrained(self.folder / "exact")
        round_blocks(model, name, ROUNDINGS[rounding])
        model.save_pretrained(self.folder / "rounded")
        return model

    def strata(self, *arguments):
        done = subprocess.run([os.environ["STRATA_PROGRAM"], *arguments], cwd=self.folder, capture_output=True,
                              env=dict(os.environ, XDG_CACHE_HOME=str(self.folder)))
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_values_have_the_bits_of_pytorch(self):
        for name, rounding in itertools.product(MODELS, ROUNDINGS):
            model = dict(self.make(name, rounding).named_parameters())
            ours = {weight: torch.tensor(parity_model(rounding, self.folder / "exact", weight), dtype=torch.float32)
                    for weight in ("block1.attention.qkv.weight", "block0.attention.out.weight", "block1.mlp.down.weight",
                                   "embed.tokens.weight")}
            if name == "gpt2":
                theirs = [model["transformer.h.1.attn.c_attn.weight"].T, model["transformer.h.0.attn.c_proj.weight"].T,
                          model["transformer.h.1.mlp.c_proj.weight"].T, model["transformer.wte.weight"]]
            else:
                theirs = [torch.cat([model[f"model.layers.1.self_attn.{part}_proj.weight"] for part in "qkv"]),
                          model["model.layers.0.self_attn.o_proj.weight"], model["model.layers.1.mlp.down_proj.weight"],
                          model["model.embed_tokens.weight"]]
            for (weight, values), expected in zip(ours.items(), theirs):
                self.assertTrue(torch.equal(values, expected.data), f"{name} {weight} {rounding}")

    def test_generates_what_the_rounded_model_generates(self):
        more = ("--set", "data.tokenizer=bytes", "--prompt", "In the", "--tokens", "40", "--temperature", "1")
        for name, rounding in itertools.product(MODELS, ROUNDINGS):
            self.make(name, rounding)
            expected = self.strata("generate", "rounded", *more)
            self.assertNotEqual(self.strata("generate", "exact", *more), expected)
            self.assertEqual(self.strata("generate", "exact", "--weights", rounding, *more), expected)

    def test_evaluates_what_the_rounded_model_evaluates(self):
        """A step with learning rate 0 makes a checkpoint of a folder."""
        for name, rounding in zip(MODELS, ROUNDINGS):
            self.make(name, rounding)
            (self.folder / "recipe.yaml").write_text(
                "data: {train: text.txt, tokenizer: bytes, validation_fraction: 0.2}\n"
                "train: {steps: 1, mini_batch: 4, micro_batch: 2, clip: 0, optimizer: {learning_rate: 0}}\n")
            losses = {}
            for folder in ("exact", "rounded"):
                self.strata("train", "recipe.yaml", "--from", folder, "--set",
                            f"train.checkpoint_folder={name}_{folder}")
                self.strata("evaluate", f"{name}_{folder}", "--weights", rounding, "--json", "found.json")
                losses[folder] = json.loads((self.folder / "found.json").read_text())
            self.assertNotEqual(losses["exact"]["loss"], losses["rounded"]["loss"])
            self.assertEqual(losses["exact"][rounding]["loss"], losses["rounded"]["loss"])


if __name__ == "__main__":
    unittest.main()
