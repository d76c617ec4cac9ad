"""Compares logits of our models with those of transformers, with weights written by either."""

import tempfile
import unittest

from oracle import import_transformers, parity_model

transformers = import_transformers()
import torch  # noqa: E402

TOLERANCE = 1e-4
CONTEXT, VOCAB = 48, 97
SMALL = dict(vocab_size=VOCAB, hidden_size=32, intermediate_size=56, num_hidden_layers=2,
             num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=CONTEXT,
             bos_token_id=None, eos_token_id=None)
LLAMA3 = dict(rope_type="llama3", rope_theta=500000.0, factor=8.0, low_freq_factor=1.0,
              high_freq_factor=4.0, original_max_position_embeddings=16)
WINDOW = dict(use_sliding_window=True, sliding_window=10, max_window_layers=0)
GPT2 = dict(vocab_size=VOCAB, n_embd=32, n_layer=2, n_head=4, n_positions=CONTEXT,
            bos_token_id=None, eos_token_id=None)

THEIRS = {
    "gpt2": transformers.GPT2Config(**GPT2),
    "gpt2 untied": transformers.GPT2Config(**GPT2, tie_word_embeddings=False),
    "llama": transformers.LlamaConfig(**SMALL),
    "llama tied": transformers.LlamaConfig(**SMALL, tie_word_embeddings=True, head_dim=12),
    "llama 3": transformers.LlamaConfig(**SMALL, rope_parameters=LLAMA3),
    "qwen2": transformers.Qwen2Config(**SMALL),
    "qwen2 tied": transformers.Qwen2Config(**SMALL, tie_word_embeddings=True),
    "qwen3": transformers.Qwen3Config(**SMALL, head_dim=16),
}

# gguf_test.py leaves these out: Strata refuses a GGUF file with a window.
WITH_WINDOWS = {
    "mistral": transformers.MistralConfig(**SMALL, sliding_window=10),
    "mistral, all tokens": transformers.MistralConfig(**SMALL, sliding_window=None),
    "qwen2 sliding": transformers.Qwen2Config(**SMALL, **WINDOW),
    "qwen3 sliding": transformers.Qwen3Config(**SMALL, **WINDOW, head_dim=16),
}

LLAMA_FIELDS = ["kind=llama", "layers=2", "width=32", "heads=4", f"vocab={VOCAB}",
                f"context={CONTEXT}", "kv_heads=2", "mlp_width=56"]
SLIDING = ["attention.pattern=sliding", "attention.window=10"]
OURS = {
    "gpt2": ["layers=2", "width=32", "heads=4", f"vocab={VOCAB}", f"context={CONTEXT}"],
    "gpt2 untied": ["layers=2", "width=32", "heads=4", f"vocab={VOCAB}", f"context={CONTEXT}",
                    "tie=false"],
    "llama": LLAMA_FIELDS + ["tie=false"],
    "llama tied": LLAMA_FIELDS + ["tie=true", "head_width=12"],
    "llama 3": LLAMA_FIELDS + ["rope.theta=500000", "rope.factor=8", "rope.original_context=16"],
    "qwen2": LLAMA_FIELDS + ["tie=false", "qkv_bias=true", "norm_epsilon=1e-6"],
    "qwen3": LLAMA_FIELDS + ["tie=false", "qk_norm=true", "head_width=16", "norm_epsilon=1e-6"],
    "mistral": LLAMA_FIELDS + ["tie=false", *SLIDING],
    "qwen3 sliding": LLAMA_FIELDS + ["tie=false", "qk_norm=true", "head_width=16", "norm_epsilon=1e-6",
                                     *SLIDING],
}


def randomise(model):
    """Randomises every parameter, also norms and biases, because their first values would hide
    errors."""
    generator = torch.Generator().manual_seed(1)
    for parameter in model.parameters():
        parameter.data.normal_(0, 0.2, generator=generator)


class Transformers(unittest.TestCase):

    def expect_equal_logits(self, folder, model):
        generator = torch.Generator().manual_seed(2)
        samples = [torch.randint(VOCAB, (1, length), generator=generator)
                   for length in (1, 7, CONTEXT)]
        tokens = [sample[0].tolist() for sample in samples]
        ours = zip(parity_model("logits", folder, tokens=tokens), parity_model("states", folder, tokens=tokens), strict=True)
        for sample, numbers in zip(samples, ours, strict=True):
            with torch.no_grad():
                theirs = model(sample, output_hidden_states=True)
            for their, our in zip((theirs.logits, theirs.hidden_states[-1]), numbers):
                self.assertEqual(len(our), their.shape[-1])
                difference = (their[0, -1] - torch.tensor(our)).abs().max().item()
                self.assertLess(difference, TOLERANCE)
                self.assertGreater(their[0, -1].std().item(), 0.1)  # something to compare

    def test_strata_reads_folders_of_transformers(self):
        for name, config in (THEIRS | WITH_WINDOWS).items():
            with self.subTest(name), tempfile.TemporaryDirectory() as folder:
                model = transformers.AutoModelForCausalLM.from_config(config).eval()
                randomise(model)
                model.save_pretrained(folder)
                self.expect_equal_logits(folder, model)

    def test_transformers_reads_folders_of_strata(self):
        for name, fields in OURS.items():
            with self.subTest(name), tempfile.TemporaryDirectory() as folder:
                parity_model("make", folder, *(f"model.{field}" for field in fields))
                model, reported = transformers.AutoModelForCausalLM.from_pretrained(
                    folder, output_loading_info=True)
                for what, keys in reported.items():
                    self.assertFalse(keys, what)  # no name is missing, unexpected or mismatched
                self.assertEqual(model.config.model_type, (THEIRS | WITH_WINDOWS)[name].model_type)
                self.expect_equal_logits(folder, model.eval())


if __name__ == "__main__":
    unittest.main()
