#!/usr/bin/env python3
"""Compares servers of one model from outside: interleaved rounds, medians, a table.

    python3 bench/serve/run.py [--peers FOLDER] [--rounds 3] [--precision fp32] [--clients 1 4 16]

What is claimed and how it is measured: bench/serve/README.md.
"""

import argparse
import json
import math
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import contest  # noqa: E402
import load  # noqa: E402
import servers  # noqa: E402
from contest import ROOT, summary  # noqa: E402

FEWEST_REQUESTS = 6
# Measure, heading, factor and digits of the table, and whether more is better.
MEASURES = {"tokens_per_second": ("tokens/s", 1, 1, True),
            "first_token_seconds": ("first token, ms", 1e3, 0, False),
            "gap_seconds_p50": ("between tokens p50, ms", 1e3, 1, False),
            "gap_seconds_p99": ("p99, ms", 1e3, 1, False)}


def measure(server, prompts, options):
    """One start of one server: the seconds to its first answer, then every number of clients."""
    body = {**server.fields, "max_tokens": options.tokens}
    with servers.started(server, options.threads, options.ready_limit) as (address, ready):
        load.run_clients(address, prompts["warm"], 2, {**body, "max_tokens": min(8, options.tokens)})
        levels = {clients: load.measure(address, prompts[clients], clients, body)
                  for clients in options.clients}
    return {"ready_seconds": ready, "levels": levels}


def report_progress(head, name, result):
    rates = "  ".join(f"{clients}: {level['tokens_per_second']:.1f} tokens/s"
                      for clients, level in result["levels"].items())
    print(f"{head}  {name:22} ready {result['ready_seconds']:.1f} s  {rates}", file=sys.stderr)
    for clients, level in result["levels"].items():
        if level["ended_early"] or level["chunks"] < level["tokens"]:
            print(f"  {clients} clients: {level['ended_early']} answers ended early, "
                  f"{level['chunks']} chunks for {level['tokens']} tokens", file=sys.stderr)


def run_rounds(contestants, options):
    text = options.text.read_text()
    rounds, failed = [], set()
    for number in range(options.rounds):
        prompts = load.prompts_of_levels(text, options.seed + number, options.clients,
                                         options.requests, FEWEST_REQUESTS)
        prompts["warm"] = load.passages(text, 2, load.random.Random(-1 - number))
        result = {}
        # Every other round runs in reverse order, so that no server always follows another.
        for server in contestants[::-1 if number % 2 else 1]:
            if server.name in failed:
                continue
            try:
                result[server.name] = measure(server, prompts, options)
            except load.ServerError as error:
                failed.add(server.name)
                print(f"run: without {server.name}: {error}", file=sys.stderr)
                continue
            report_progress(f"round {number + 1}/{options.rounds}", server.name,
                            result[server.name])
        rounds.append(result)
    whole = [server for server in contestants if server.name not in failed]
    return rounds, whole


def same_texts(rounds, name, ours):
    """How many answers of `name` equal ours but for blanks at both ends, and of how many."""
    pairs = [(mine, other) for result in rounds for clients, level in result[name]["levels"].items()
             for mine, other in zip(result[ours]["levels"][clients]["texts"], level["texts"])]
    return sum(mine.strip() == other.strip() for mine, other in pairs), len(pairs)


def summarise(rounds, contestants, options):
    result = {}
    for server in contestants:
        levels = {clients: {key: summary([r[server.name]["levels"][clients][key] for r in rounds])
                            for key in MEASURES} for clients in options.clients}
        ours = f"strata {server.precision}"
        compared = any(other.name == ours for other in contestants)
        result[server.name] = {
            "ready_seconds": summary([r[server.name]["ready_seconds"] for r in rounds]),
            "levels": levels,
            "same_texts": same_texts(rounds, server.name, ours) if compared else None}
    return result


def ratio(ours, peers, more_is_better):
    """Above 1: ours is better than the best peer."""
    return ours / max(peers) if more_is_better else min(peers) / ours


def ratios(rounds, contestants, options):
    """Within each round, ours against the peer that is best in this measure."""
    result = {}
    for precision in options.precision:
        ours = f"strata {precision}"
        peers = [server.name for server in contestants
                 if server.precision == precision and server.kind != "strata"]
        if not peers or ours not in [server.name for server in contestants]:
            continue
        result[precision] = {
            clients: {key: summary([ratio(r[ours]["levels"][clients][key],
                                          [r[p]["levels"][clients][key] for p in peers], more)
                                    for r in rounds]) for key, (_, _, _, more) in MEASURES.items()}
            for clients in options.clients}
    return result


def cell(entry, factor, digits):
    if math.isnan(entry["median"]):
        return "–"
    median, low, high = (entry[key] * factor for key in ("median", "min", "max"))
    return f"{median:.{digits}f} ({low:.{digits}f} – {high:.{digits}f})"


def table(result):
    heads = [head for head, _, _, _ in MEASURES.values()]
    lines = ["| server | clients | " + " | ".join(heads) + " | ready, s | texts equal to ours |",
             "| --- " * (len(heads) + 4) + "|"]
    for name, entry in result.items():
        same = "{} of {}".format(*entry["same_texts"]) if entry["same_texts"] else "–"
        for number, (clients, level) in enumerate(entry["levels"].items()):
            cells = [cell(level[key], factor, digits)
                     for key, (_, factor, digits, _) in MEASURES.items()]
            last = ["", ""] if number else [cell(entry["ready_seconds"], 1, 1), same]
            lines.append(f"| {name} | {clients} | " + " | ".join(cells + last) + " |")
    return "\n".join(lines)


def ratios_text(result):
    lines = []
    for precision, levels in result.items():
        for clients, measures in levels.items():
            cells = [f"{head.split(',')[0]} {cell(measures[key], 1, 2)}"
                     for key, (head, _, _, _) in MEASURES.items()]
            lines.append(f"{precision}, {clients} clients, against the best peer of each measure: "
                         + "; ".join(cells))
    return "\n".join(lines)


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--strata", default=contest.STRATA, help="the program")
    parser.add_argument("--peers", type=Path, default=ROOT / "data/peers",
                        help="folder of install_peers.sh: NAME/bin/python for each peer")
    parser.add_argument("--only", nargs="*", choices=servers.PACKAGES,
                        default=list(servers.PACKAGES), help="peers; none: ours alone")
    parser.add_argument("--model", type=Path, default=ROOT / "data/smollm2",
                        help="folder that prepare.py wrote")
    parser.add_argument("--text", type=Path, default=ROOT / "data/kjv.txt", help="of the prompts")
    parser.add_argument("--precision", nargs="+", choices=servers.PEERS, default=["fp32"])
    parser.add_argument("--clients", nargs="+", type=int, default=[1, 4, 16])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--requests", type=int, default=2, help="of each client")
    parser.add_argument("--tokens", type=int, default=32, help="of each answer")
    parser.add_argument("--threads", type=int, default=2, help="of each server")
    parser.add_argument("--seed", type=int, default=1, help="of the prompts")
    parser.add_argument("--ready-limit", type=float, default=180, help="seconds to the first answer")
    options = parser.parse_args()
    if min(options.rounds, options.requests, options.threads, options.tokens, *options.clients) < 1:
        parser.error("rounds, requests, tokens, threads and clients start at 1")
    for path, command in ((Path(options.strata), "make build"),
                          (options.text, "tools/fetch_text.sh"),
                          (options.model / "fp32", "tools/fetch_smollm2.sh and bench/serve/prepare.py")):
        if not path.exists():
            sys.exit(f"run: no {path}; run {command} first")
    return options


def main():
    options = parse()
    contestants, versions = servers.contestants(options.strata, options.peers, options.only,
                                                options.model, options.precision, options.threads)
    print(json.dumps(versions), file=sys.stderr)
    rounds, contestants = run_rounds(contestants, options)
    result = summarise(rounds, contestants, options)
    against = ratios(rounds, contestants, options)
    print("\n" + table(result) + "\n\n" + ratios_text(against))
    contest.write(HERE, options, {"versions": versions, "servers": result, "ratios": against},
                  rounds)


if __name__ == "__main__":
    main()
