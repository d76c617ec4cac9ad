#!/usr/bin/env python3
"""Compares a server whose weights leave the device with one whose 8-bit weights guess: interleaved rounds, a table.

    python3 bench/draft/run.py [--rounds 3] [--device 470MiB] [--link 1GB] [--clients 1 4]

What is claimed and how it is measured: bench/draft/README.md.
"""

import argparse
import re
import sys
import urllib.request
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "serve")]
import contest  # noqa: E402
import load  # noqa: E402
import servers  # noqa: E402
from contest import spread, summary  # noqa: E402

AWAY, GUESSED, NGRAMS = "weights off the device", "the same, 8-bit weights guess", "the same, repeated text guesses"
ON_DEVICE = "all weights on the device"


def contestants(options):
    budget = ("--set", f"memory.device={options.device}", "--set", f"memory.link.bandwidth={options.link}")
    more = {ON_DEVICE: (), AWAY: budget, NGRAMS: (*budget, "--guesses", str(options.guesses)),
            GUESSED: (*budget, "--draft", str(options.model), "--draft-weights", "int8", "--guesses", str(options.guesses))}
    base = (contest.STRATA, "serve", str(options.model), "--listen", "127.0.0.1:{port}", "--name", "m", "--cache",
            options.cache, "--set", f"mesh.threads={options.threads}")
    return [servers.Server(name, "strata", "fp32", (*base, *arguments), servers.OPENAI) for name, arguments in more.items()]


def guesses(address):
    """Tokens that were guessed, and guesses that were right, since the start."""
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=60) as answer:
        text = answer.read().decode()
    return [sum(float(number) for number in re.findall(rf"(?m)^strata_{name}_total\S* (\S+)$", text))
            for name in ("guessed_tokens", "accepted_guesses")]


def measure(server, prompts, options):
    body = {**server.fields, "max_tokens": options.tokens}
    with servers.started(server, options.threads, 300) as (address, _):
        load.run_clients(address, prompts["warm"], 2, {**body, "max_tokens": 8})
        levels = {clients: load.measure(address, prompts[clients], clients, body) for clients in options.clients}
        guessed, right = guesses(address)
    return {"levels": levels, "right": right / guessed if guessed else None}


def run_rounds(options):
    text, rounds = options.text.read_text(), []
    for number in range(options.rounds):
        prompts = load.prompts_of_levels(text, options.seed + number, options.clients, 2, 4)
        prompts["warm"] = load.passages(text, 2, load.random.Random(-1 - number))
        result = {}
        # Every other round runs in reverse order, so that no server always follows another.
        for server in contestants(options)[::-1 if number % 2 else 1]:
            result[server.name] = measure(server, prompts, options)
            rates = "  ".join(f"{clients}: {level['tokens_per_second']:.1f} tokens/s"
                              for clients, level in result[server.name]["levels"].items())
            print(f"round {number + 1}/{options.rounds}  {server.name:32} {rates}", file=sys.stderr)
        for name, entry in result.items():
            for clients, level in entry["levels"].items():
                if level["texts"] != result[ON_DEVICE]["levels"][clients]["texts"]:
                    sys.exit(f"run: {name}, {clients} clients: other answers than {ON_DEVICE}")
        rounds.append(result)
    return rounds


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    servers.add_options(parser)
    parser.add_argument("--device", default="470MiB", help="budget of the device")
    parser.add_argument("--link", default="1GB", help="bytes a second between host and device, emulated")
    parser.add_argument("--cache", default="48MiB", help="memory for keys and values")
    parser.add_argument("--guesses", type=int, default=6)
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--tokens", type=int, default=48, help="of an answer")
    options = servers.parse(parser, contest.STRATA)
    rounds = run_rounds(options)
    result = {}
    print("| server | guesses that were right | " + " | ".join(
        f"{clients} client{'s' * (clients > 1)}, tokens/s | of {AWAY}" for clients in options.clients) + " |")
    print("| --- | --- |" + " --- | --- |" * len(options.clients))
    for name in (ON_DEVICE, AWAY, NGRAMS, GUESSED):
        right = [entry[name]["right"] for entry in rounds if entry[name]["right"] is not None]
        share = f"{summary(right)['median']:.0%}" if right else "–"
        cells, result[name] = [], {"right": summary(right) if right else None, "levels": {}}
        for clients in options.clients:
            rates = [entry[name]["levels"][clients]["tokens_per_second"] for entry in rounds]
            ratios = [rate / entry[AWAY]["levels"][clients]["tokens_per_second"] for rate, entry in zip(rates, rounds)]
            result[name]["levels"][clients] = {"tokens_per_second": summary(rates), "ratio": summary(ratios)}
            cells += [spread(rates, 1), spread(ratios, 2, "×")]
        print(f"| {name} | {share} | " + " | ".join(cells) + " |")
    print("\nAll servers gave the same answers.")
    contest.write(HERE, options, result, rounds)


if __name__ == "__main__":
    main()
