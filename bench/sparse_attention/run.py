#!/usr/bin/env python3
"""Compares attention with sparse patterns to dense attention and FlexAttention: interleaved rounds,
medians, a table.

    python3 bench/sparse_attention/run.py [--rounds 5] [--tokens 4096 16384] [--patterns sliding bigbird]

What is claimed and how it is measured: bench/sparse_attention/README.md.
"""

import argparse
import json
import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import contest  # noqa: E402
from contest import spread, summary  # noqa: E402
from resident import ROOT  # noqa: E402

PROGRAM = ROOT / "build/release/bench/sparse_attention/sparse_attention"
PATTERNS = {
    "sliding": "{pattern: sliding, window: 1024}",
    "fixed": "{pattern: fixed, window: 512, global_blocks: 1, forms: 4}",
    "variable": "{pattern: variable, windows: [256, 512, 1024], globals: [0], random_blocks: 2}",
    "bigbird": "{pattern: bigbird, window: 512, global_blocks: 1, random_blocks: 4, forms: 4}",
    "longformer": "{pattern: longformer, window: 1024, globals: [0, 32]}",
}


def options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tokens", type=int, nargs="+", default=[4096, 16384])
    parser.add_argument("--patterns", nargs="+", choices=PATTERNS, default=list(PATTERNS))
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--width", type=int, default=64, help="of a head")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--seconds", type=float, default=0.5, help="of repetitions, a turn")
    parsed = parser.parse_args()
    if not PROGRAM.exists():
        sys.exit(f"run: no {PROGRAM}; run `ninja -C build/release sparse_attention` first")
    return parsed


class Bench:
    def __init__(self, chosen):
        self.chosen = chosen
        sizes = [str(chosen.heads), str(chosen.width), str(chosen.threads)]
        variables = {"OMP_NUM_THREADS": str(chosen.threads)}
        self.ours = contest.Program([str(PROGRAM), *sizes], variables)
        self.flex = contest.Program([contest.PYTHON, str(HERE / "flex_peer.py"), *sizes], variables)

    def ask(self, contestant, tokens, pattern, seconds=None):
        text = PATTERNS[pattern]
        seconds = self.chosen.seconds if seconds is None else seconds
        if contestant == "flex-forward":
            blocks = self.ask("blocks", tokens, pattern)
            request = {"tokens": tokens, "seconds": seconds,
                       **{key: blocks[key] for key in ("block", "window", "blocks")}}
            return self.flex.ask(json.dumps(request))
        return self.ours.ask(f"{contestant} {tokens} {seconds} {text}")

    def longest(self, contestant, budget):
        """The most tokens, in steps of 64, of which a step takes at most so many bytes."""
        def fits(blocks):
            return self.ask(contestant, 64 * blocks, "sliding", 0)["peak_bytes"] <= budget

        low, high = 0, 1
        while fits(high):  # a step of far too many tokens could take all memory
            low, high = high, high + max(1, high // 4)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if fits(middle) else (low, middle)
        return 64 * low

    def end(self):
        self.ours.end()
        self.flex.end()


def rounds_of(bench, tokens, pattern):
    names = ["sparse-forward", "flash-forward", "flex-forward", "sparse-step", "flash-step"]
    results = []
    for number in range(bench.chosen.rounds):
        # Every other round runs in reverse order, so that no contestant always follows another.
        order = names if number % 2 == 0 else names[::-1]
        result = {name: min(bench.ask(name, tokens, pattern)["seconds"]) for name in order}
        results.append(result)
        print(f"{pattern:10} {tokens:6} tokens, round {number + 1}/{bench.chosen.rounds}  "
              + "  ".join(f"{name} {1e3 * result[name]:.0f} ms" for name in names), file=sys.stderr)
    return results


def flops(chosen, tokens, share, step):
    """Products of forward, or of both: 2 and 5 for each pair of blocks."""
    pairs = share * tokens * tokens / 2
    return pairs * chosen.heads * chosen.width * 2 * (7 if step else 2)


def compare(bench, tokens, pattern, gemm_rate):
    chosen = bench.chosen
    rounds = rounds_of(bench, tokens, pattern)
    layout = bench.ask("blocks", tokens, pattern)
    against = {name: [r[other] / r[ours] for r in rounds] for name, ours, other in
               (("forward, of dense", "sparse-forward", "flash-forward"),
                ("step, of dense", "sparse-step", "flash-step"),
                ("forward, of FlexAttention", "sparse-forward", "flex-forward"))}
    per_density = [r["sparse-step"] / layout["density"] / r["flash-step"] for r in rounds]
    rate = [flops(chosen, tokens, layout["work_share"], True) / r["sparse-step"] / gemm_rate for r in rounds]
    return {"tokens": tokens, "pattern": pattern, "density": layout["density"],
            "work_share": layout["work_share"], "rounds": rounds,
            "seconds": {name: summary([r[name] for r in rounds]) for name in rounds[0]},
            "times_as_fast": {name: summary(values) for name, values in against.items()},
            "time_by_density": summary(per_density), "share_of_gemm": summary(rate),
            "row": [pattern, str(tokens), f"{layout['density']:.1%}",
                    f"{1e3 * summary([r['sparse-step'] for r in rounds])['median']:.0f} ms",
                    *(spread(values, 2, "×") for values in against.values()),
                    spread(per_density, 2), f"{summary(rate)['median']:.0%}"]}


def memory(bench, tokens, pattern):
    """How much longer a sample may be, at the bytes of a step."""
    budget = bench.ask("sparse-step", tokens, pattern, 0)["peak_bytes"]
    scores = bench.longest("scores-step", budget)
    flash = bench.ask("flash-step", tokens, pattern, 0)["peak_bytes"]
    return {"pattern": pattern, "tokens": tokens, "peak_bytes": budget, "scores_tokens": scores,
            "flash_bytes": flash}


def main():
    chosen = options()
    gemm_rate = contest.gemm(contest.Kind(processes=1, threads=chosen.threads))
    bench = Bench(chosen)
    results = [compare(bench, tokens, pattern, gemm_rate)
               for tokens in chosen.tokens for pattern in chosen.patterns]
    lines = ["| pattern | tokens | density | step | times as fast, forward | step | forward, against FlexAttention "
             "| time ÷ density, of dense | of the GEMM rate |", "|" + " --- |" * 9]
    lines += ["| " + " | ".join(result["row"]) + " |" for result in results]
    print("\n" + "\n".join(lines) + f"\n\nGEMM: {gemm_rate / 1e9:.0f} GFLOP/s\n")
    held = [memory(bench, max(chosen.tokens), pattern) for pattern in chosen.patterns]
    for entry in held:
        print(f"{entry['pattern']}: a step of {entry['tokens']} tokens takes {entry['peak_bytes'] / 2**20:.0f} MiB; in as "
              f"many dense attention by its formula has {entry['scores_tokens']} tokens "
              f"({entry['tokens'] / entry['scores_tokens']:.1f}× fewer); the fused kernel takes {entry['flash_bytes'] / 2**20:.0f} MiB "
              f"for {entry['tokens']}")
    bench.end()
    contest.write(HERE, chosen, {"results": results, "memory": held, "gemm": gemm_rate}, [])


main()
