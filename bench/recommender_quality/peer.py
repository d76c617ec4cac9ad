"""The same net in plain PyTorch: its first values and its optimizer are PyTorch's own."""

import sys

import torch
from torch import nn
from torch.nn import functional

from resident import ROOT

sys.path.insert(0, str(ROOT / "tests/parity"))
from recommender_nets import KINDS  # noqa: E402


class Samples:
    """Numbers as z-scores of the training samples; ids as places in a vocabulary; an unknown id shares one place."""

    def __init__(self, task, rows):
        self.task = task
        self.vocabulary = [sorted({text for row in rows for text in self.texts(row, column)}) for column in task.ids]
        self.places = [{text: i for i, text in enumerate(texts)} for texts in self.vocabulary]
        numbers = self.numbers(rows)
        self.mean, deviation = numbers.mean(0), numbers.std(0, correction=0)
        self.deviation = torch.where(deviation > 0, deviation, torch.ones_like(deviation))

    def texts(self, row, column):
        return row[column].split(" ") if column in self.task.several else [row[column]]

    def numbers(self, rows):
        return torch.tensor([[float(row[column]) for column in self.task.numbers] for row in rows],
                            dtype=torch.float64)

    def read(self, rows):
        """Numbers, per column the ids of all samples and where each sample's begin, labels."""
        columns = []
        for column, places in zip(self.task.ids, self.places):
            ids, begins = [], []
            for row in rows:
                begins.append(len(ids))
                ids += [places.get(text, len(places)) for text in self.texts(row, column)]
            columns.append((torch.tensor(ids), torch.tensor([*begins, len(ids)])))
        numbers = ((self.numbers(rows) - self.mean) / self.deviation).float()
        return numbers, columns, torch.tensor([float(row["label"]) for row in rows])


class Log:
    """The samples of a task as tensors, read once for all nets and peers."""

    def __init__(self, task, rows, test):
        samples = Samples(task, rows)
        self.ids = [len(texts) + 1 for texts in samples.vocabulary]
        self.train, self.test = samples.read(rows), samples.read(test)


def part(columns, begin, end):
    for ids, begins in columns:
        yield ids[begins[begin]:begins[end]], begins[begin:end] - begins[begin]


def train(task, model, log, seed, strata_rows):
    """Quality on the test samples. `strata_rows`: embeddings begin and learn as Strata's do by default; else as
    nn.EmbeddingBag begins, and by the optimizer of the net."""
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    net = KINDS[model["kind"]](dict(model=model, numeric=len(task.numbers), row_widths=[task.width] * len(task.ids)))
    tables = nn.ModuleList(nn.EmbeddingBag(count, task.width, mode="mean") for count in log.ids)
    if strata_rows:
        for table in tables:
            nn.init.uniform_(table.weight, -0.01, 0.01)
        optimizers = [torch.optim.AdamW(net.parameters()), torch.optim.Adagrad(tables.parameters(), lr=0.05)]
    else:
        optimizers = [torch.optim.AdamW([*net.parameters(), *tables.parameters()])]

    def scores(numbers, columns, begin, end):
        rows = [table(ids, begins) for table, (ids, begins) in zip(tables, part(columns, begin, end))]
        return net(numbers[begin:end], torch.cat(rows, 1))

    numbers, columns, labels = log.train
    for begin in range(0, len(labels), task.mini_batch):
        end = begin + task.mini_batch
        loss = functional.binary_cross_entropy_with_logits(scores(numbers, columns, begin, end), labels[begin:end])
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
    numbers, columns, labels = log.test
    with torch.no_grad():
        found = scores(numbers, columns, 0, len(labels)).double()
    return quality(found, labels.double())


def quality(scores, labels):
    """The area under the ROC curve, ties counted half, and the log loss."""
    values, place = scores.unique(return_inverse=True)
    positive = torch.bincount(place, labels, len(values))
    negative = torch.bincount(place, 1 - labels, len(values))
    below = negative.cumsum(0) - negative
    pairs = (positive * (below + negative / 2)).sum()
    return {"auc": (pairs / (positive.sum() * negative.sum())).item(),
            "log_loss": functional.binary_cross_entropy_with_logits(scores, labels).item()}
