#!/usr/bin/env python3
"""Compares reads and Adagrad updates of rows with FBGEMM's CPU embedding: interleaved rounds, medians, a table.

    python3 bench/embedding/run.py [--rounds 7] [--rows 100000 10000000] [--widths 16 64] [--fbgemm PYTHON]

What is claimed and how it is measured: bench/embedding/README.md.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import contest  # noqa: E402
from contest import summary  # noqa: E402
from resident import ROOT  # noqa: E402

PROGRAM = ROOT / "build/release/bench/embedding/embedding_bench"
BATCH, BATCHES = 65536, 16
OURS, PEER, LIMITS = ("read", "update"), ("read", "update"), ("chase", "lines")

# Writes batches of row numbers: uniform, or Zipf with ranks in no order of numbers.
DRAW = """
import sys, numpy
rows, skew, path = int(sys.argv[1]), float(sys.argv[2]), sys.argv[3]
random = numpy.random.default_rng(5)
if skew == 0:
    ids = random.integers(0, rows, {count})
else:
    shares = numpy.cumsum(numpy.arange(1, rows + 1, dtype=numpy.float64) ** -skew)
    ranks = numpy.searchsorted(shares, random.random({count}) * shares[-1])
    ids = random.permutation(rows)[numpy.minimum(ranks, rows - 1)]
ids.astype(numpy.int64).tofile(path)
""".format(count=BATCH * BATCHES)


def options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--rows", type=int, nargs="+", default=[100_000, 10_000_000])
    parser.add_argument("--widths", type=int, nargs="+", default=[16, 64])
    parser.add_argument("--skews", type=float, nargs="+", default=[0, 1.05])
    parser.add_argument("--optimizer", choices=("adagrad", "rowwise_adagrad"), default="adagrad")
    parser.add_argument("--precision", choices=("fp32", "fp16", "int8"), default="fp32")
    parser.add_argument("--seconds", type=float, default=0.3, help="of each measure, a turn")
    parser.add_argument("--apart", action="store_true",
                        help="one contestant after the other, where memory holds one")
    parser.add_argument("--fbgemm", help="a Python that has fbgemm-gpu-cpu; without, no peer")
    parsed = parser.parse_args()
    if not PROGRAM.exists():
        sys.exit(f"run: no {PROGRAM}; run `ninja -C build/release embedding_bench` first")
    return parsed


def program_of(command, rows, width, chosen, batches):
    """A contestant that works when its turn comes."""
    return contest.Program([*command, str(rows), str(width), chosen.optimizer, chosen.precision, batches,
                            str(chosen.seconds)])


def turns(programs, rounds, label):
    """Of each program in turn all that it measures; round -1 finds the pages, and doesn't count."""
    results = []
    for number in range(-1, rounds):
        result = {}
        for name in (list(programs) if number % 2 == 0 else list(programs)[::-1]):
            for what in ((OURS + LIMITS) if name == "strata" else PEER):
                result[f"{name} {what}"] = programs[name].ask(what)
        rates = "  ".join(f"{name} {entry['per_second'] / 1e6:.2f}" for name, entry in result.items())
        print(f"{label}  round {number + 1}/{rounds}  {rates}", file=sys.stderr)
        results.append(result)
    return results[1:]


def measure(rows, width, skew, chosen, folder):
    batches = f"{folder}/batches"
    subprocess.run([contest.PYTHON, "-c", DRAW, str(rows), str(skew), batches], check=True)
    commands = {"strata": [str(PROGRAM)]}
    if chosen.fbgemm:
        commands["fbgemm"] = [chosen.fbgemm, str(HERE / "fbgemm_peer.py")]
    groups = [[name] for name in commands] if chosen.apart else [list(commands)]
    rounds = [{} for _ in range(chosen.rounds)]
    for group in groups:
        programs = {name: program_of(commands[name], rows, width, chosen, batches) for name in group}
        for whole, part in zip(rounds, turns(programs, chosen.rounds, f"{rows} x {width}, skew {skew}")):
            whole.update(part)
        for program in programs.values():
            program.end()
    return rounds


def summarise(rounds):
    rate = {name: summary([r[name]["per_second"] for r in rounds]) for name in rounds[0]}
    result = {"per_second": rate,
              "resident_bytes_per_row": rounds[0]["strata read"]["resident_bytes_per_row"]}
    for what in PEER:
        if f"fbgemm {what}" in rate:
            result[f"{what} against fbgemm"] = summary(
                [r[f"strata {what}"]["per_second"] / r[f"fbgemm {what}"]["per_second"] for r in rounds])
    return result


def spread(value, scale=1e6):
    return f"{value['median'] / scale:.2f} ({value['min'] / scale:.2f} – {value['max'] / scale:.2f})"


def table(results):
    lines = ["| rows | width | ids | M reads/s | FBGEMM | ratio | M updates/s | FBGEMM | ratio | "
             "a dependent read, ns | M lines/s | resident bytes a row |", "| --- " * 12 + "|"]
    for entry in results:
        rate = entry["per_second"]
        cells = [f"{entry['rows']:.0e}", str(entry["width"]),
                 f"Zipf {entry['skew']}" if entry["skew"] else "uniform"]
        for what in PEER:
            peer, ratio = rate.get(f"fbgemm {what}"), entry.get(f"{what} against fbgemm")
            cells += [spread(rate[f"strata {what}"]), spread(peer) if peer else "",
                      spread(ratio, 1) + "×" if ratio else ""]
        cells += [f"{1e9 / rate['strata chase']['median']:.0f}", spread(rate["strata lines"]),
                  f"{entry['resident_bytes_per_row']:.1f}"]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main():
    chosen = options()
    results, rounds = [], []
    with tempfile.TemporaryDirectory() as folder:
        for rows in chosen.rows:
            for width in chosen.widths:
                for skew in chosen.skews:
                    measured = measure(rows, width, skew, chosen, folder)
                    results.append({"rows": rows, "width": width, "skew": skew, **summarise(measured)})
                    rounds.append(measured)
    print("\n" + table(results))
    contest.write(HERE, chosen, {"sizes": results}, rounds)


if __name__ == "__main__":
    main()
