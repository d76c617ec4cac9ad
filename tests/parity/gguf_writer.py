"""Writes GGUF files from metadata and arrays, for tests: docs/gguf.md of github.com/ggml-org/ggml."""

import struct

import numpy as np

F32, F16, BF16 = 0, 1, 30
ALIGNMENT = 32


def text(value):
    encoded = value.encode()
    return struct.pack("<Q", len(encoded)) + encoded


def value(item):
    """The type and the bytes of a metadata value."""
    if isinstance(item, bool):
        return struct.pack("<I?", 7, item)
    if isinstance(item, int):
        return struct.pack("<II", 4, item)
    if isinstance(item, float):
        return struct.pack("<If", 6, item)
    if isinstance(item, str):
        return struct.pack("<I", 8) + text(item)
    if isinstance(item[0], str):
        return struct.pack("<IIQ", 9, 8, len(item)) + b"".join(text(each) for each in item)
    numbers = np.asarray(item, dtype=np.float32 if isinstance(item[0], float) else np.int32)
    kind = 6 if numbers.dtype == np.float32 else 5
    return struct.pack("<IIQ", 9, kind, len(item)) + numbers.tobytes()


def write(path, metadata, tensors):
    """`tensors`: name -> array of fp32, or (type, shape, bytes of blocks)."""
    infos, data = b"", b""
    for name, tensor in tensors.items():
        if isinstance(tensor, np.ndarray):
            tensor = (F32, tensor.shape, np.ascontiguousarray(tensor, dtype=np.float32).tobytes())
        kind, shape, content = tensor
        infos += text(name) + struct.pack("<I", len(shape))
        infos += b"".join(struct.pack("<Q", size) for size in reversed(shape))
        infos += struct.pack("<IQ", kind, len(data))
        data += content + bytes(-len(content) % ALIGNMENT)
    keys = b"".join(text(key) + value(item) for key, item in metadata.items())
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(metadata)) + keys + infos
    with open(path, "wb") as file:
        file.write(head + bytes(-len(head) % ALIGNMENT) + data)


OUTSIDE = {"token_embd": ["embed_tokens", "wte"], "position_embd": ["wpe"], "output_norm": ["norm", "ln_f"],
           "output": ["lm_head"]}
INSIDE = {"attn_norm": ["input_layernorm", "ln_1"], "attn_qkv": ["attn.c_attn"], "attn_q": ["self_attn.q_proj"],
          "attn_k": ["self_attn.k_proj"], "attn_v": ["self_attn.v_proj"], "attn_q_norm": ["self_attn.q_norm"],
          "attn_k_norm": ["self_attn.k_norm"], "attn_output": ["self_attn.o_proj", "attn.c_proj"],
          "ffn_norm": ["post_attention_layernorm", "ln_2"], "ffn_gate": ["mlp.gate_proj"],
          "ffn_up": ["mlp.up_proj", "mlp.c_fc"], "ffn_down": ["mlp.down_proj", "mlp.c_proj"]}


def name_in_gguf(name):
    """"blk.0.attn_q.weight" for "model.layers.0.self_attn.q_proj.weight"."""
    module, kind = name.rsplit(".", 1)
    module = module.removeprefix("model.").removeprefix("transformer.")
    parts = module.split(".", 2)
    if parts[0] in ("layers", "h"):
        ours = next(ours for ours, theirs in INSIDE.items() if parts[2] in theirs)
        return f"blk.{parts[1]}.{ours}.{kind}"
    return next(ours for ours, theirs in OUTSIDE.items() if module in theirs) + "." + kind


def interleaved(rows, heads):
    """Rows of each head in the order of llama files: a row of its first half, one of its second, ..."""
    return rows.reshape(heads, 2, -1, rows.shape[-1]).swapaxes(1, 2).reshape(rows.shape)


def of_model(config, weights):
    """Metadata and arrays of a model of transformers: its config as a dict, its weights by name."""
    kind = config["model_type"]
    metadata = {"general.architecture": kind, f"{kind}.vocab_size": config["vocab_size"]}
    gpt2 = kind == "gpt2"
    sizes = {"n_layer": "block_count", "n_positions": "context_length", "n_embd": "embedding_length",
             "n_head": "attention.head_count", "num_hidden_layers": "block_count", "head_dim": "attention.key_length",
             "max_position_embeddings": "context_length", "hidden_size": "embedding_length",
             "intermediate_size": "feed_forward_length", "num_attention_heads": "attention.head_count",
             "num_key_value_heads": "attention.head_count_kv"}
    for theirs, ours in sizes.items():
        if config.get(theirs) is not None:
            metadata[f"{kind}.{ours}"] = config[theirs]
    if gpt2:
        metadata["gpt2.feed_forward_length"] = 4 * config["n_embd"]
        metadata["gpt2.attention.layer_norm_epsilon"] = 1e-5
    else:
        metadata[f"{kind}.attention.layer_norm_rms_epsilon"] = config["rms_norm_eps"]
        metadata[f"{kind}.rope.freq_base"] = float((config.get("rope_parameters") or config)["rope_theta"])
    tied = config.get("tie_word_embeddings")
    tensors = {}
    for name, array in weights.items():
        if tied and name == "lm_head.weight":
            continue
        if gpt2 and name.endswith(".weight") and any(part in name for part in (".c_attn", ".c_proj", ".c_fc")):
            array = array.T
        if kind == "llama" and ".q_proj." in name:
            array = interleaved(array, config["num_attention_heads"])
        if kind == "llama" and ".k_proj." in name:
            array = interleaved(array, config["num_key_value_heads"])
        tensors[name_in_gguf(name)] = np.ascontiguousarray(array)
    return metadata, tensors


def of_tokenizer(tokenizer, pre):
    """Metadata of a byte-level tokenizer: a tokenizer.json as a dict."""
    ids = dict(tokenizer["model"]["vocab"])
    types = {}
    for added in tokenizer["added_tokens"]:
        ids[added["content"]] = added["id"]
        types[added["id"]] = 3 if added["special"] else 4
    by_id = {number: token for token, number in ids.items()}
    count = max(by_id) + 1
    merges = [pair if isinstance(pair, str) else " ".join(pair) for pair in tokenizer["model"]["merges"]]
    return {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": pre,
            "tokenizer.ggml.tokens": [by_id.get(i, f"[PAD{i}]") for i in range(count)],
            "tokenizer.ggml.token_type": [types.get(i, 1 if i in by_id else 5) for i in range(count)],
            "tokenizer.ggml.merges": merges}


def of_pieces(path):
    """Metadata of a tokenizer of llama2.c: scores and pieces, as SentencePiece trained them."""
    content = path.read_bytes()
    scores, tokens, at = [], [], 4
    while at < len(content):
        score, size = struct.unpack_from("<fi", content, at)
        tokens.append(content[at + 8:at + 8 + size].decode())
        scores.append(score)
        at += 8 + size
    tokens[:3] = ["<unk>", "<s>", "</s>"]
    tokens[3:259] = [f"<0x{byte:02X}>" for byte in range(256)]
    tokens[259:] = [token.replace(" ", "\u2581") for token in tokens[259:]]
    types = [2, 3, 3] + 256 * [6] + [1] * (len(tokens) - 259)
    return {"tokenizer.ggml.model": "llama", "tokenizer.ggml.tokens": tokens,
            "tokenizer.ggml.scores": scores, "tokenizer.ggml.token_type": types,
            "tokenizer.ggml.unknown_token_id": 0, "tokenizer.ggml.bos_token_id": 1,
            "tokenizer.ggml.eos_token_id": 2}
