#!/usr/bin/env python3
"""Trains models that others wrote, unchanged, on two stages: which work, and why the others are refused.

    pip install --no-deps timm torchvision==0.28.0 && pip install transformers pillow
    python3 bench/graph/outsiders.py [--only NAME,...] [--json FILE]

For each model: export, plan, one step on one rank, and the same step on two stages, whose loss must have the same bits. Weights are
random. Needs the Python package (docs/python.md) for PyTorch 2.13.
"""

import argparse
import importlib.util
import json
import pathlib
import re
import sys
import time
import traceback

import torch
from torch import nn

import strata

CLASSES, BATCH = 10, 4


def declare_missing_operators():
    """torchvision's wheel has operators for CUDA only, which these models do not call; it needs their names."""
    spec = importlib.util.find_spec("torchvision")
    if spec is None:
        return
    text = (pathlib.Path(spec.submodule_search_locations[0]) / "_meta_registrations.py").read_text()
    library = torch.library.Library("torchvision", "DEF")
    declare_missing_operators.library = library  # operators end with their library
    for pair in set(re.findall(r'register_meta\("(\w+)"\)|"torchvision::(\w+)"', text)):
        library.define(f"{pair[0] or pair[1]}(Tensor x) -> Tensor")


def torchvision_model(name, size=64):
    def make():
        import torchvision

        return torchvision.models.get_model(name, weights=None, num_classes=CLASSES), torch.randn(BATCH, 3, size, size)

    return make


def timm_model(name, size=None, **options):
    def make():
        import timm

        model = timm.create_model(name, num_classes=CLASSES, **options)
        side = size or model.default_cfg["input_size"][-1]
        return model, torch.randn(BATCH, 3, side, side)

    return make


class Logits(nn.Module):
    """A model of transformers returns a dictionary of outputs: its logits."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, inputs):
        return self.model(inputs).logits


def classifier(kind, pixels=None, **sizes):
    def make():
        import transformers

        config = getattr(transformers, f"{kind}Config")(num_labels=CLASSES, **sizes)
        if pixels:
            return Logits(getattr(transformers, f"{kind}ForImageClassification")(config)), torch.randn(BATCH, 3, pixels, pixels)
        return Logits(getattr(transformers, f"{kind}ForSequenceClassification")(config)), torch.randint(10, 90, (BATCH, 16))

    return make


def language_model(kind, **sizes):
    def make():
        import transformers

        sizes.setdefault("vocab_size", 100)
        config = getattr(transformers, f"{kind}Config")(**sizes, use_cache=False)
        return Logits(getattr(transformers, f"{kind}ForCausalLM")(config)), torch.randint(10, 90, (BATCH, 16))

    return make


SMALL = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 64}
GROUPED = {**SMALL, "num_key_value_heads": 2}
MODELS = {
    "torchvision resnet18": torchvision_model("resnet18"),
    "torchvision densenet121": torchvision_model("densenet121"),
    "torchvision mobilenet_v3_small": torchvision_model("mobilenet_v3_small"),
    "torchvision efficientnet_b0": torchvision_model("efficientnet_b0"),
    "torchvision convnext_tiny": torchvision_model("convnext_tiny"),
    "torchvision shufflenet_v2_x0_5": torchvision_model("shufflenet_v2_x0_5"),
    "torchvision squeezenet1_1": torchvision_model("squeezenet1_1"),
    "torchvision swin_t": torchvision_model("swin_t"),
    "torchvision vit_b_16": torchvision_model("vit_b_16", 224),
    "torchvision googlenet": torchvision_model("googlenet"),
    "timm resnetv2_50": timm_model("resnetv2_50", 64),
    "timm mixer_s32_224": timm_model("mixer_s32_224"),
    "timm mobilevit_xxs": timm_model("mobilevit_xxs", 64),
    "timm levit_128s": timm_model("levit_128s"),
    "timm poolformer_s12": timm_model("poolformer_s12", 64),
    "timm regnetx_002": timm_model("regnetx_002", 64),
    "timm vit_tiny_patch16_224": timm_model("vit_tiny_patch16_224", drop_path_rate=0.1),
    "timm convit_tiny": timm_model("convit_tiny"),
    "timm edgenext_xx_small": timm_model("edgenext_xx_small", 64),
    "timm coatnet_pico_rw_224": timm_model("coatnet_pico_rw_224"),
    "transformers Bert": classifier("Bert", vocab_size=100, **SMALL),
    "transformers DistilBert": classifier("DistilBert", vocab_size=100, dim=32, n_layers=3, n_heads=4, hidden_dim=64),
    "transformers ViT": classifier("ViT", 32, image_size=32, patch_size=8, **SMALL),
    "transformers ConvNext": classifier("ConvNext", 32, hidden_sizes=[8, 16, 24, 32], depths=[1, 1, 2, 1]),
    "transformers OPT": language_model("OPT", hidden_size=32, num_hidden_layers=3, num_attention_heads=4, ffn_dim=64, word_embed_proj_dim=32,
                                       max_position_embeddings=32),
    "transformers GPTNeoX": language_model("GPTNeoX", max_position_embeddings=32, **SMALL),
    "transformers Mistral": language_model("Mistral", **GROUPED),
    "transformers Gemma2": language_model("Gemma2", head_dim=8, **GROUPED),
    "transformers Phi3": language_model("Phi3", pad_token_id=0, **GROUPED),
    "transformers Mamba": language_model("Mamba", hidden_size=32, num_hidden_layers=3, state_size=8),
    "transformers Mixtral": language_model("Mixtral", num_local_experts=4, **GROUPED),
    "transformers Swin": classifier("Swin", 32, image_size=32, patch_size=4, embed_dim=16, depths=[1, 1], num_heads=[2, 2], window_size=4,
                                    drop_path_rate=0.2),
}
# Modules that run in Python, by the ends of their names: an operator of its own, torch.rand.
IN_PYTHON = {"transformers Mixtral": ".mlp.experts", "transformers Swin": ".drop_path"}


def loss_of(make, mesh, in_python):
    """The loss of one step, as exact text, and the pipeline's plan."""
    torch.manual_seed(1)
    model, x = make()
    with torch.no_grad():
        shape = model.eval()(x).shape
    y = torch.randint(0, shape[-1], tuple(shape[:-1]))
    layers = [name for name, module in model.named_modules() if in_python and name.endswith(in_python)]
    with strata.Pipeline(model.train(), lr=1e-3, mesh=mesh, chunks=2, example=(x, y), python_layers=layers) as pipe:
        return pipe.step(x, y)["loss_hex"], pipe.plan.json


def reason_of(error):
    if isinstance(error, strata.UserError) and error.what:
        return f"{error.what}: {error.got}"
    lines = [line for line in str(error).strip().splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else ''}"


def try_model(make, in_python=""):
    begin = time.perf_counter()
    try:
        loss, plan = loss_of(make, {"pp": 2, "threads": 1}, in_python)
        same = loss_of(make, {"threads": 1}, in_python)[0] == loss
    except Exception as error:  # noqa: BLE001: the table says why
        return {"result": "refused", "reason": reason_of(error)[:160], "trace": traceback.format_exc()}
    return {"result": "equal bits" if same else "OTHER BITS", "layers": sum(stage["layers"] if isinstance(stage["layers"], int) else len(stage["layers"]) for stage in plan["stages"]),
            "loss": float.fromhex(loss), "seconds": round(time.perf_counter() - begin, 1)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--only", help="names of models, with commas")
    parser.add_argument("--json", help="file for the table")
    options = parser.parse_args()
    declare_missing_operators()
    torch.set_num_threads(1)
    table = {}
    for name, make in MODELS.items():
        if options.only and not any(wanted in name for wanted in options.only.split(",")):
            continue
        row = table[name] = try_model(make, IN_PYTHON.get(name, ""))
        print(f"{name:32} {row['result']:12} " + (f"{row['layers']:4} layers  loss {row['loss']:.4f}  {row['seconds']:.0f} s" if "loss" in row else row["reason"]), flush=True)
    print(f"{sum(row['result'] == 'equal bits' for row in table.values())} of {len(table)} models train on two stages with the bits of one")
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(table, indent=1) + "\n")
    sys.exit(any(row["result"] == "OTHER BITS" for row in table.values()))


if __name__ == "__main__":
    main()
