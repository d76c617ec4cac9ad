"""Sends 1,000 random requests to servers of each kind of model, and compares their answers bit by bit.

However a server runs - on which mesh, with weights on host or disk, requests alone or together, prompts in parts, answers
computed again, pages reused, tokens guessed - each answer is that of a server that answers one request after the other.
strata/serve/equal_bits_test.cpp compares the logits with those of training. STRATA_LONG_REQUESTS: 1,000 by default.
"""

import concurrent.futures
import os
import random
import unittest

from model_server import Server, ServerTest
from strata_program import ProgramTest

REQUESTS = int(os.environ.get("STRATA_LONG_REQUESTS", 1000))
CONTEXT = 96
MODELS = {
    "gpt": [],
    "llama": ["model.kind=llama", "model.kv_heads=2", "model.width=64", "model.heads=4", "model.tie=false"],
    "qwen2": ["model.kind=llama", "model.qkv_bias=true", "model.mlp_width=96"],
    "qwen3": ["model.kind=llama", "model.qk_norm=true", "model.head_width=24"],
}
SETTINGS = {
    "together": ["--set", "mesh.pp=1"],
    "in parts": ["--set", "mesh.pp=1", "--pass-tokens", "19", "--sequences", "5"],
    "computed again": ["--set", "mesh.pp=1", "--cache", "192KiB", "--sequences", "12"],  # two pages of qwen3
    "guessed": ["--set", "mesh.pp=1", "--guesses", "4"],
    "stages": ["--set", "mesh.pp=2"],
    "stages in parts": ["--set", "mesh.pp=2", "--pass-tokens", "19", "--guesses", "2"],
    "host": ["--set", "mesh.pp=2", "--set", "memory.weights=host"],
    "disk": ["--set", "mesh.pp=1", "--set", "memory.weights=disk", "--set", "memory.disk.path=disk"],
}


def requests():
    numbers = random.Random(11)
    beginnings = ["".join(numbers.choices("abcdefgh ", k=70)) for _ in range(20)]
    for seed in range(REQUESTS):
        prompt = numbers.choice(beginnings)[:numbers.randint(1, 70)] + "".join(numbers.choices("xyz ", k=numbers.randint(0, 9)))
        yield {"prompt": prompt, "max_tokens": numbers.randint(1, 16), "seed": seed, "temperature": numbers.choice([0, 0.8, 1]),
               "logprobs": numbers.choice([0, 3]), "echo": numbers.random() < 0.3, "n": numbers.choice([1, 1, 1, 2])}


class EqualAnswers(ServerTest):
    setUp = ProgramTest.setUp

    def answers(self, server, clients):
        """The choices of all requests; JSON has the shortest decimals that give the bits back."""
        with concurrent.futures.ThreadPoolExecutor(clients) as pool:
            return [answer["choices"] for answer in pool.map(lambda body: server.complete(**body), requests())]

    def start_server(self, *arguments):
        cache = [] if "--cache" in arguments else ["--cache", "4MiB"]
        return Server(self, "c", "--listen", "127.0.0.1:0", "--waiting", "2000", *cache, *arguments)

    def train(self, model, precision):
        fields = [*MODELS[model], f"train.precision={precision}", f"model.context={CONTEXT}", "model.dropout=0",
                  "train.checkpoint_folder=c"]
        self.succeed("train", "recipe.yaml", *(word for field in fields for word in ("--set", field)))

    def compare(self, model, precision):
        self.train(model, precision)
        server = self.start_server("--set", "mesh.pp=1")
        alone = self.answers(server, 1)
        server.end()
        for name, arguments in SETTINGS.items():
            with self.subTest(model=model, precision=precision, setting=name):
                server = self.start_server(*arguments)
                self.assertEqual(self.answers(server, 16), alone)
                server.end()
        # Tensor-parallel ranks add in another order.
        for stages in (1, 2):
            with self.subTest(model=model, precision=precision, setting=f"tensor-parallel, {stages} stages"):
                split = ["--set", "mesh.tp=2", "--set", f"mesh.pp={stages}"]
                server = self.start_server(*split)
                expected = self.answers(server, 1)
                server.end()
                server = self.start_server(*split, "--pass-tokens", "19", "--guesses", "2")
                self.assertEqual(self.answers(server, 16), expected)
                server.end()


for each_model in MODELS:
    for each_precision in ("fp32", "bf16"):
        def test(self, model=each_model, precision=each_precision):
            self.compare(model, precision)
        setattr(EqualAnswers, f"test_{each_model}_in_{each_precision}", test)

if __name__ == "__main__":
    unittest.main()
