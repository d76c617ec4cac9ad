#!/usr/bin/env python3
"""Runs lm-eval on `strata serve` and on transformers: both must have the same scores.

    python3 bench/serve/scores.py [--peers FOLDER] [--documents 40]

Two tasks are written from the text: which of four second halves a verse has (`multiple_choice`),
and bits a byte of passages (`loglikelihood_rolling`). lm-eval asks the server through
`local-completions`, and computes the same with its model `hf`, in fp32. Probabilities are fp64 in
both: an fp32 sum over 49,152 tokens is off by 5e-6. Without lm-eval: skipped.
"""

import argparse
import json
import os
import random
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import load
import servers

ROOT = Path(__file__).resolve().parents[2]
BITS_TOLERANCE = 1e-6  # relative: both logits are fp32
CHOICE = """task: strata_choice
dataset_path: json
dataset_kwargs: {{data_files: {{test: {file}}}}}
output_type: multiple_choice
test_split: test
doc_to_text: "{{{{begin}}}}"
doc_to_choice: "{{{{choices}}}}"
doc_to_target: target
target_delimiter: ""
metric_list: [{{metric: acc}}, {{metric: acc_norm}}]
"""
BITS = """task: strata_bits
dataset_path: json
dataset_kwargs: {{data_files: {{test: {file}}}}}
output_type: loglikelihood_rolling
test_split: test
doc_to_text: ""
doc_to_target: "{{{{text}}}}"
metric_list: [{{metric: bits_per_byte}}]
"""
SCORES = {"acc": ("strata_choice", "acc,none"), "acc_norm": ("strata_choice", "acc_norm,none"),
          "bits_per_byte": ("strata_bits", "bits_per_byte,none")}


def halves(verse):
    words = verse.split()
    middle = len(words) // 2
    return " ".join(words[:middle]), " " + " ".join(words[middle:])


def choice_documents(text, count, random_numbers):
    verses = [line.split(" ", 1)[1] for line in text.splitlines() if re.match(r"\S+:\d+ ", line)]
    for verse in random_numbers.sample([each for each in verses if len(each.split()) > 11], count):
        begin, right = halves(verse)
        choices = [halves(random_numbers.choice(verses))[1] for _ in range(3)]
        target = random_numbers.randrange(4)
        choices.insert(target, right)
        yield {"begin": begin, "choices": choices, "target": target}


def write_tasks(folder, text, count, random_numbers):
    bits = ({"text": passage} for passage in load.passages(text, count, random_numbers))
    choice = choice_documents(text, count, random_numbers)
    for name, task, documents in (("choice", CHOICE, choice), ("bits", BITS, bits)):
        file = folder / f"{name}.jsonl"
        file.write_text("".join(json.dumps(document) + "\n" for document in documents))
        (folder / f"{name}.yaml").write_text(task.format(file=file))


def scores(python, folder, name, model, arguments):
    """What lm-eval writes for this model: score by name."""
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1",
                   "HF_HOME": str(folder / "cache")}
    subprocess.run([python, "-m", "lm_eval", "--model", model, "--model_args", arguments, "--tasks",
                    "strata_choice,strata_bits", "--include_path", str(folder), "--output_path",
                    str(folder / f"{name}.json"), "--batch_size", "4", "--device", "cpu"],
                   check=True, env=environment, stdout=subprocess.DEVNULL)
    written = max(folder.glob(f"{name}*.json"), key=lambda file: file.stat().st_mtime)
    results = json.loads(written.read_text())["results"]
    return {score: results[task][key] for score, (task, key) in SCORES.items()}


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--strata", default=str(ROOT / "build/release/strata"), help="the program")
    parser.add_argument("--peers", type=Path, default=ROOT / "data/peers",
                        help="folder of install_peers.sh, which has lm_eval/bin/python")
    parser.add_argument("--model", type=Path, default=ROOT / "data/smollm2/fp32",
                        help="Hugging Face folder")
    parser.add_argument("--text", type=Path, default=ROOT / "data/kjv.txt")
    parser.add_argument("--documents", type=int, default=40, help="of each task")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


def main():
    options = parse()
    python = servers.interpreter(options.peers, "lm_eval")
    if not python.exists():
        print(f"scores: skipped, {python} is missing; see bench/serve/install_peers.sh")
        return
    server = servers.strata(options.strata, options.model, "fp32", options.threads)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_tasks(folder, options.text.read_text(), options.documents, random.Random(options.seed))
        with servers.started(server, options.threads, 300) as (address, _):
            ours = scores(str(python), folder, "ours", "local-completions",
                          f"model=m,base_url=http://{address}/v1/completions,tokenizer={options.model},"
                          "tokenizer_backend=huggingface,num_concurrent=4,max_retries=1")
        theirs = scores(str(python), folder, "theirs", "hf",
                        f"pretrained={options.model},dtype=float32,softmax_dtype=float64,add_bos_token=False")
    for score in SCORES:
        print(f"{score:14} strata serve {ours[score]:.10f}   transformers {theirs[score]:.10f}")
    far = abs(ours["bits_per_byte"] / theirs["bits_per_byte"] - 1) > BITS_TOLERANCE
    if far or any(ours[score] != theirs[score] for score in ("acc", "acc_norm")):
        sys.exit("scores: the scores differ")


if __name__ == "__main__":
    main()
