#!/usr/bin/env python3
"""Writes one model in the formats that the servers read, each with the same weights, once.

    .venv/bin/python bench/serve/prepare.py [--model FILE.gguf] [--folder data/smollm2]

FOLDER/fp32 is a Hugging Face folder; FOLDER/f32.gguf, bf16.gguf and f16.gguf are GGUF files. Their
weights are those of the 4-bit file, dequantised and rounded. Needs gguf, torch and transformers.
"""

import argparse
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MODEL = ROOT / "data/smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"


PRECISIONS = {"f32.gguf": ("F32", "ALL_F32"), "bf16.gguf": ("BF16", "MOSTLY_BF16"),
              "f16.gguf": ("F16", "MOSTLY_F16")}


def write_gguf(model, path):
    """Copies the metadata; matrices get the precision of the file's name, vectors stay fp32."""
    import gguf

    precision, file_type = PRECISIONS[path.name]
    reader = gguf.GGUFReader(model)
    kind = gguf.GGMLQuantizationType[precision]
    part = path.with_suffix(".part")
    writer = gguf.GGUFWriter(part, reader.fields["general.architecture"].contents())
    for key, field in reader.fields.items():
        written_by_the_writer = key.startswith("GGUF.") or key == "general.architecture"
        if written_by_the_writer or key == "general.quantization_version":
            continue
        value, types = field.contents(), field.types
        if key == "general.file_type":
            value = int(gguf.LlamaFileType[file_type])
        writer.add_key_value(key, value, types[0], types[-1] if len(types) > 1 else None)
    for tensor in reader.tensors:
        weights = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        used = kind if weights.ndim > 1 else gguf.GGMLQuantizationType.F32
        writer.add_tensor(tensor.name, gguf.quants.quantize(weights, used), raw_dtype=used)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    part.rename(path)


def write_folder(model, folder):
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    part = folder.with_suffix(".part")
    shutil.rmtree(part, ignore_errors=True)
    source = {"pretrained_model_name_or_path": str(model.parent), "gguf_file": model.name}
    network = AutoModelForCausalLM.from_pretrained(**source, dtype=torch.float32)
    del network.hf_quantizer, network.config.quantization_config  # its weights are plain fp32
    network.save_pretrained(part)
    AutoTokenizer.from_pretrained(**source).save_pretrained(part)
    part.rename(folder)


def prepare(model, folder):
    for name in PRECISIONS:
        if not (folder / name).exists():
            write_gguf(model, folder / name)
    if not (folder / "fp32").is_dir():
        write_folder(model, folder / "fp32")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=Path, default=MODEL)
    parser.add_argument("--folder", type=Path, default=MODEL.parent)
    options = parser.parse_args()
    if not options.model.exists():
        sys.exit(f"prepare: no {options.model}; run tools/fetch_smollm2.sh")
    prepare(options.model, options.folder)
    print(*sorted(str(path) for path in options.folder.iterdir()), sep="\n")


if __name__ == "__main__":
    main()
