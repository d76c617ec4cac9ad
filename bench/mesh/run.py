#!/usr/bin/env python3
"""Compares two data-parallel replicas of Strata with PyTorch's and DeepSpeed's, on Gloo.

    python3 bench/mesh/run.py [--rounds 7] [--steps 4] [--deepspeed FOLDER] [--only NAME ...]

What is claimed and how it is measured: bench/mesh/README.md.
"""

import argparse
import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import contest  # noqa: E402
import trace_overlap  # noqa: E402
from contest import Contestant, Kind, Pair  # noqa: E402
from resident import Failed, call  # noqa: E402

REPLICAS = 2
KINDS = {"replicas": Kind(processes=REPLICAS, threads=1)}
PAIRS = [
    Pair("strata dp", ("torch ddp", "torch fsdp2")),
    Pair("strata zero 1", ("torch ddp zero 1", "deepspeed zero 1")),
    Pair("strata zero 2", ("deepspeed zero 2",)),
    Pair("strata zero 3", ("torch fsdp2",)),
    Pair("strata zero 3", ("deepspeed zero 3", "deepspeed zero 3 lean")),
    Pair("strata dp, threads", ("torch ddp",)),
    Pair("strata zero 3, threads", ("torch fsdp2", "deepspeed zero 3", "deepspeed zero 3 lean")),
]


def deepspeed_environment(folder):
    """Where DeepSpeed is found: PYTHONPATH for its contestants, and its version; or why not."""
    environment = {**os.environ, "DS_ACCELERATOR": "cpu"}
    if folder:
        environment["PYTHONPATH"] = str(Path(folder).resolve())
    program = "import deepspeed; print('version', deepspeed.__version__)"
    try:
        output, _ = call([contest.PYTHON, "-c", program], environment)
    except Failed as failure:
        return None, str(failure).strip().splitlines()[-1]
    return environment, output.split()[-1]


def strata_contestants(options):
    def ours(zero, *launch):
        settings = [f"mesh.dp={REPLICAS}", f"mesh.zero={zero}"]
        return Contestant("replicas", lambda: contest.strata(
            "recipes/bench-mesh.yaml", settings, options, launch, trace_overlap.overlap))

    processes = ("launch", "-n", str(REPLICAS), "--")
    return {"strata dp": ours(0, *processes), "strata zero 1": ours(1, *processes),
            "strata zero 2": ours(2, *processes), "strata zero 3": ours(3, *processes),
            "strata dp, threads": ours(0), "strata zero 3, threads": ours(3)}


def torch_contestants(options, deepspeed):
    def peer(name, environment=None):
        return Contestant("replicas", lambda: contest.torch_peer(
            HERE / "torch_peer.py", [name], options, environment))

    peers = {"torch ddp": peer("ddp"), "torch ddp zero 1": peer("ddp-zero1"),
             "torch fsdp2": peer("fsdp2")}
    if deepspeed:
        for name in ("zero1", "zero2", "zero3", "zero3-lean"):
            words = name.replace("zero", "zero ").replace("-", " ")
            peers[f"deepspeed {words}"] = peer(f"deepspeed-{name}", deepspeed)
    return peers


def once_a_round(options, contestants):
    """DDP's overlap has a run of its own: the hook that times its buckets is Python."""
    def peer(*arguments):
        return lambda: contest.torch_peer(HERE / "torch_peer.py", arguments, options)

    more = {"all-reduce alone": peer("alone")}
    if "torch ddp" in contestants:
        more["torch ddp, timed"] = peer("ddp", "--overlap")
    return more


def overlaps(rounds):
    """Of everyone that was asked, the spread over rounds of what it did."""
    names = [name for name, entry in rounds[0].items() if "overlap" in entry]
    return {name: {field: contest.summary([r[name]["overlap"][field] for r in rounds])
                   for field in rounds[0][name]["overlap"]} for name in names}


def overlap_table(result):
    lines = ["| contestant | reductions under way | waits | backward slower by | hidden | "
             "hidden, slower backward counted |", "| --- | --- | --- | --- | --- | --- |"]
    for name, entry in result["overlap"].items():
        seconds = [f"{1e3 * entry[field]['median']:.1f} ms" for field in
                   ("under_way_seconds", "wait_seconds", "slower_seconds")]
        shares = [f"{entry[field]['median']:.0%} ({entry[field]['min']:.0%} – "
                  f"{entry[field]['max']:.0%})" for field in ("hidden_share", "hidden_share_of_wall")]
        lines.append(f"| {name} | {' | '.join(seconds + shares)} |")
    alone = 1e3 * result["all_reduce_alone_seconds"]["median"]
    return "\n".join(lines) + f"\n\nGloo's all-reduce of all gradients, alone: {alone:.1f} ms"


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    contest.add_options(parser)
    parser.add_argument("--deepspeed", metavar="FOLDER",
                        help="where DeepSpeed is installed, if not in .venv")
    contest.add_only(parser)
    return contest.parse(parser)


def main():
    options = parse()
    deepspeed, version = deepspeed_environment(options.deepspeed)
    print(f"DeepSpeed {version}" if deepspeed else f"without DeepSpeed: {version}")
    contestants = contest.chosen(options, {**strata_contestants(options), **torch_contestants(options, deepspeed)})
    pairs = contest.remaining(PAIRS, contestants)
    result, rounds = contest.compare(options, contestants, KINDS, pairs,
                                     once_a_round(options, contestants))
    result["overlap"] = overlaps(rounds)
    result["all_reduce_alone_seconds"] = contest.summary(
        [r["all-reduce alone"]["collective_seconds"] for r in rounds])
    result["deepspeed"] = version
    print("\n" + overlap_table(result))
    contest.write(HERE, options, result, rounds)


if __name__ == "__main__":
    main()
