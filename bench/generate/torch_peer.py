#!/usr/bin/env python3
"""Generates greedily with transformers and its cache; prints the seconds of generate() alone."""

import argparse
import json
import os
import sys
import time

os.environ["HF_HUB_OFFLINE"] = "1"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder")
    parser.add_argument("--tokens", type=int, required=True)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    import torch
    import transformers
    torch.set_num_threads(options.threads)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    model = transformers.AutoModelForCausalLM.from_pretrained(options.folder, dtype=torch.float32)
    model.eval()
    tokenizer = transformers.PreTrainedTokenizerFast.from_pretrained(options.folder)
    prompt = torch.tensor([[1]])  # the token that begins a text

    def generate(tokens):
        with torch.inference_mode():
            return model.generate(prompt, attention_mask=torch.ones_like(prompt), do_sample=False,
                                  use_cache=True, min_new_tokens=tokens, max_new_tokens=tokens,
                                  pad_token_id=0)

    generate(4)  # what runs once: lazy imports, allocations
    begin, busy = time.perf_counter(), time.process_time()
    tokens = generate(options.tokens)[0, 1:]
    seconds, busy = time.perf_counter() - begin, time.process_time() - busy
    print(json.dumps({"seconds": seconds, "processor_seconds": busy, "tokens": len(tokens), "text": tokenizer.decode(tokens)}))


if __name__ == "__main__":
    sys.exit(main())
