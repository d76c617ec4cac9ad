"""What is learned: a log of samples to train on, in the order in which both systems read it, and one to test on."""

import csv
import random
import struct
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from resident import ROOT

PROGRAM = ROOT / "build/release/strata"
ADULT_COLUMNS = ("workclass", "education", "marital_status", "occupation", "relationship", "race", "sex",
                 "native_country")
PIXELS = [f"p{i}" for i in range(64)]


@dataclass(frozen=True)
class Task:
    numbers: list  # columns, read as z-scores
    ids: list      # columns
    several: tuple = ()  # of `ids`: columns that hold several ids, of which the mean is read
    width: int = 8       # of a row
    epochs: int = 1
    mini_batch: int = 256
    train: list = field(default_factory=list)  # samples: texts by column; "label" is 0 or 1
    test: list = field(default_factory=list)


def read_records(path):
    """The samples of a file that `strata convert` wrote (docs/formats.md), by column."""
    data = Path(path).read_bytes()
    samples, names_at, index_at = struct.unpack_from("<QQQ", data, len(data) - 64)

    def texts(at, count):
        found = []
        for _ in range(count):
            length, shift = 0, 0
            while True:
                byte = data[at]
                at, length, shift = at + 1, length | (byte & 127) << shift, shift + 7
                if byte < 128:
                    break
            found.append(data[at:at + length].decode())
            at += length
        return found, at

    names, at = [], names_at
    while at < index_at:
        (name,), at = texts(at, 1)
        names.append(name)
    blocks = struct.unpack_from(f"<{(samples + 15) // 16 + 1}Q", data, index_at)
    rows = []
    for block in blocks[:-1]:
        count, = struct.unpack_from("<I", data, block + 12)
        at = block + 16 + 4 * count
        for _ in range(count):
            row, at = texts(at, len(names))
            rows.append(dict(zip(names, row)))
    return rows


def clicks(seed, folder, linear, pairwise):
    """Made-up clicks of `data.synthetic`; another seed is another teacher and other clicks."""
    recipe = folder / "clicks.yaml"
    recipe.write_text(f"""\
model: {{kind: dlrm, bottom: [8]}}
data:
  format: synthetic
  synthetic:
    samples: 50000
    validation_samples: 20000
    numeric: 4
    linear: {linear}
    pairwise: {pairwise}
    seed: {seed}
    features:
      - {{name: user, cardinality: 500, zipf: 1.05}}
      - {{name: item, cardinality: 300, zipf: 1.05}}
      - {{name: words, cardinality: 100, zipf: 1.05, least_ids: 1, most_ids: 4}}
""")
    parts = []
    for name, more in (("train", []), ("test", ["--validation"])):
        records = folder / f"{name}.strata"
        run = subprocess.run([PROGRAM, "convert", recipe, records, *more], capture_output=True, text=True, cwd=ROOT)
        if run.returncode != 0:
            sys.exit(run.stderr)
        parts.append(read_records(records))
    return Task([f"n{i}" for i in range(1, 5)], ["user", "item", "words"], ("words",), train=parts[0], test=parts[1])


def adult(seed, folder):
    parts = []
    for name in ("train", "test"):
        path = ROOT / f"data/adult/{name}.csv"
        if not path.exists():
            sys.exit("run: no data; run tools/fetch_adult.sh first")
        with path.open() as file:
            parts.append([{**row, "label": str(int(row["income"] == ">50K"))} for row in csv.DictReader(file)])
    return Task(["age", "education_num", "capital_gain", "capital_loss", "hours_per_week"], list(ADULT_COLUMNS),
                epochs=2, train=parts[0], test=parts[1])


def digits(seed, folder):
    """Is a handwritten digit 5 or more? The upper half of its pixels are numbers, the lower half are ids."""
    path = ROOT / "data/digits/digits.csv"
    if not path.exists():
        sys.exit("run: no data; run tools/fetch_digits.sh first")
    rows = [dict(zip([*PIXELS, "digit"], line.split(","))) for line in path.read_text().split()]
    rows = [{**row, "label": str(int(int(row["digit"]) >= 5))} for row in rows]
    random.Random(seed).shuffle(rows)
    return Task(PIXELS[:32], PIXELS[32:], epochs=15, mini_batch=64, train=rows[:1347], test=rows[1347:])


SETS = {
    "clicks": lambda seed, folder: clicks(seed, folder, linear=2, pairwise=0.5),
    "clicks, pairs": lambda seed, folder: clicks(seed, folder, linear=1, pairwise=1),
    "adult": adult,
    "digits": digits,
}


def in_order(task, seed):
    """The training samples of all epochs, each in an order of its own; what fills no mini-batch is left out."""
    draw = random.Random(1000 + seed)
    order = []
    for _ in range(task.epochs):
        epoch = list(range(len(task.train)))
        draw.shuffle(epoch)
        order += epoch
    return [task.train[i] for i in order[:len(order) // task.mini_batch * task.mini_batch]]
