#!/usr/bin/env python3
"""Compares a server that forgets keys and values with those that move them to the host or a disk: a table.

    python3 bench/pages/run.py [--rounds 3] [--conversations 8] [--turns 3]

What is claimed and how it is measured: bench/pages/README.md.
"""

import argparse
import statistics
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "serve")]
import contest  # noqa: E402
import load  # noqa: E402
import servers  # noqa: E402
from contest import ROOT, spread, summary  # noqa: E402

FORGETS, HOST, DISK, ALL = "forgets", "moves to the host", "moves to the disk", "keeps all on the device"


def contestants(options, disk):
    more = {FORGETS: ("--cache", options.cache), HOST: ("--cache", options.cache, "--cache-host", options.room),
            DISK: ("--cache", options.cache, "--cache-disk", options.room, "--set", f"memory.disk.path={disk}"),
            ALL: ("--cache", options.room)}
    base = (contest.STRATA, "serve", str(options.model), "--listen", "127.0.0.1:{port}", "--name", "m", "--context", "2048",
            "--set", f"mesh.threads={options.threads}")
    return [servers.Server(name, "strata", "fp32", (*base, *arguments), servers.OPENAI) for name, arguments in more.items()]


def conversations(options, seed):
    """For each conversation its first message and those that follow: passages of the text."""
    words = load.re.sub(r"(?m)^\S+:\d+ ", "", options.text.read_text()).split()
    numbers = load.random.Random(seed)

    def passage(length):
        begin = numbers.randrange(len(words) - length)
        return " ".join(words[begin:begin + length])

    return [[passage(options.first_words), *(passage(options.words) for _ in range(options.turns - 1))]
            for _ in range(options.conversations)]


def measure(server, talks, options):
    """All conversations take turns, one request at a time: every message comes after those of all others."""
    body = {**server.fields, "max_tokens": options.tokens}
    first, texts, said = [], [], ["" for _ in talks]
    with servers.started(server, options.threads, 300) as (address, _):
        for turn in range(options.turns):
            for number, talk in enumerate(talks):
                said[number] += talk[turn]
                answer = load.stream(address, {**body, "prompt": said[number]})
                said[number] += answer.text + " "
                texts.append(answer.text)
                if turn > 0:
                    first.append(answer.arrivals[0] - answer.sent)
    return {"first_token_seconds": statistics.median(first), "first_token_seconds_p99": load.percentile(first, 0.99),
            "texts": texts}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    servers.add_options(parser)
    parser.add_argument("--cache", default="96MiB", help="memory for keys and values on the device")
    parser.add_argument("--room", default="1GiB", help="the same, of the host or the disk")
    parser.add_argument("--conversations", type=int, default=8)
    parser.add_argument("--turns", type=int, default=3, help="messages of a conversation")
    parser.add_argument("--first-words", type=int, default=400, help="of a conversation's first message")
    parser.add_argument("--words", type=int, default=20, help="of a later message")
    parser.add_argument("--tokens", type=int, default=16, help="of an answer")
    options = servers.parse(parser, contest.STRATA)
    rounds = []
    with tempfile.TemporaryDirectory(dir=ROOT / "data") as disk:
        for number in range(options.rounds):
            talks, result = conversations(options, options.seed + number), {}
            # Every other round runs in reverse order, so that no server always follows another.
            for server in contestants(options, disk)[::-1 if number % 2 else 1]:
                result[server.name] = measure(server, talks, options)
                print(f"round {number + 1}/{options.rounds}  {server.name:24} first token "
                      f"{result[server.name]['first_token_seconds'] * 1e3:.0f} ms", file=sys.stderr)
            for name, entry in result.items():
                if entry["texts"] != result[FORGETS]["texts"]:
                    sys.exit(f"run: the server that {name} gives other answers than the one that {FORGETS}")
            rounds.append(result)
    print("| server | first token, median, ms | 99 of 100, ms | faster than one that forgets |\n| --- | --- | --- | --- |")
    result = {}
    for name in (FORGETS, HOST, DISK, ALL):
        entries = [entry[name] for entry in rounds]
        ratios = [entry[FORGETS]["first_token_seconds"] / entry[name]["first_token_seconds"] for entry in rounds]
        result[name] = {"first_token_seconds": summary([e["first_token_seconds"] for e in entries]),
                        "first_token_seconds_p99": summary([e["first_token_seconds_p99"] for e in entries]),
                        "ratio": summary(ratios)}
        print(f"| {name} | {spread([e['first_token_seconds'] * 1e3 for e in entries], 0)} | "
              f"{spread([e['first_token_seconds_p99'] * 1e3 for e in entries], 0)} | "
              f"{spread(ratios, 1, '×')} |")
    print("\nAll servers gave the same answers.")
    contest.write(HERE, options, result, rounds)


if __name__ == "__main__":
    main()
