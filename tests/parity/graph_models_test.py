"""Exports models of transformers, unchanged and in training mode, and trains each on one rank and on two stages.

The bits of loss and weights must be equal. Prints a line for each model.
"""

import unittest

import graph_case
from graph_case import torch, transformers
from torch import nn

SIZES = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48)
WORDS = dict(vocab_size=40, use_cache=False, bos_token_id=None, eos_token_id=None, pad_token_id=0)


class Output(nn.Module):
    """One tensor of what a model returns."""

    def __init__(self, model, name, **fixed):
        super().__init__()
        self.model, self.name, self.fixed = model, name, fixed

    def forward(self, x):
        return getattr(self.model(x, **self.fixed), self.name)


def masked(kind, **sizes):
    config = getattr(transformers, kind + "Config")(vocab_size=40, max_position_embeddings=24, **sizes)
    return Output(getattr(transformers, kind + "ForMaskedLM")(config), "logits")


def causal(kind, **sizes):
    config = getattr(transformers, kind + "Config")(**WORDS, **sizes)
    return Output(getattr(transformers, kind + "ForCausalLM")(config), "logits", use_cache=False)


def classifier(kind, **sizes):
    config = getattr(transformers, kind + "Config")(num_labels=5, **sizes)
    return Output(getattr(transformers, kind + "ForImageClassification")(config), "logits")


MODELS = {
    "BERT": lambda: masked("Bert", **SIZES),
    "RoBERTa": lambda: masked("Roberta", **SIZES),
    "DistilBERT": lambda: masked("DistilBert", dim=32, n_layers=2, n_heads=4, hidden_dim=48),
    "GPT-NeoX": lambda: causal("GPTNeoX", max_position_embeddings=32, **SIZES),
    "OPT": lambda: causal("OPT", hidden_size=32, num_hidden_layers=2, ffn_dim=48, num_attention_heads=4,
                          max_position_embeddings=32, word_embed_proj_dim=32),
    "Qwen2": lambda: causal("Qwen2", num_key_value_heads=2, max_position_embeddings=32, **SIZES),
    "Mamba": lambda: causal("Mamba", hidden_size=32, num_hidden_layers=2),
    "T5's encoder": lambda: Output(transformers.T5EncoderModel(transformers.T5Config(
        vocab_size=40, d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4)), "last_hidden_state"),
    "Wav2Vec2": lambda: Output(transformers.Wav2Vec2Model(transformers.Wav2Vec2Config(
        conv_dim=(16, 16), conv_stride=(5, 2), conv_kernel=(10, 3), num_feat_extract_layers=2, num_conv_pos_embeddings=8,
        num_conv_pos_embedding_groups=2, apply_spec_augment=False, layerdrop=0, **SIZES)), "last_hidden_state"),
    "ViT": lambda: classifier("ViT", image_size=32, patch_size=8, **SIZES),
    "ConvNeXt": lambda: classifier("ConvNext", num_stages=2, hidden_sizes=[8, 16], depths=[1, 1]),
    "ResNet": lambda: classifier("ResNet", embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1]),
    "MobileNetV2": lambda: classifier("MobileNetV2", depth_multiplier=0.25),
    "Swin": lambda: classifier("Swin", image_size=32, patch_size=4, embed_dim=16, depths=[1, 1], num_heads=[2, 2], window_size=4),
}
IMAGES = ("ViT", "ConvNeXt", "ResNet", "MobileNetV2", "Swin")
REFUSED = {"Swin": "random numbers would depend on the mesh"}


def sample_of(name):
    if name in IMAGES:
        return torch.randn(4, 3, 32, 32)
    return torch.randn(4, 400) if name == "Wav2Vec2" else torch.randint(1, 40, (4, 16))


class Models(graph_case.GraphTest):

    def test_two_stages_have_the_bits_of_one(self):
        for name, make in MODELS.items():
            with self.subTest(name):
                model, x = make().train(), sample_of(name)
                self.export(model, x)
                targets = torch.randn_like(model.eval()(x).detach())
                self.write(x, targets)
                if name in REFUSED:
                    with self.assertRaisesRegex(AssertionError, REFUSED[name]):
                        self.strata(x, targets, steps=1)
                    print(f"{name:14} refused: {REFUSED[name]}")
                    continue
                one = self.strata(x, targets, steps=2, micro_batch=2)
                self.assert_bits(self.strata(x, targets, steps=2, micro_batch=2, stages=2), one)
                print(f"{name:14} {len(one[3])} layers, two stages have the bits of one")


if __name__ == "__main__":
    unittest.main()
