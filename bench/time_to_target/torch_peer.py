#!/usr/bin/env python3
"""Trains a task of this bench with PyTorch alone until its target, and writes the run as `strata train --run-json` does.

    torch_peer.py gpt|fashion|adult --target NAME<=VALUE --seed N --out run.json [--compile | --stages 2]

The clock starts before the data are read; importing PyTorch does not count. With --stages, as many processes train it with
torch.distributed.pipelining, a thread each, by 1F1B with eight micro-batches.
"""

import argparse
import copy
import json
import sys
import time
from pathlib import Path

import torch
import torch._dynamo  # optimizers import it when the first one is made, which would take seconds of the run

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from ranks import is_rank, join, start_ranks  # noqa: E402
from torch_tasks import TASKS, optimizers_of, set_rate  # noqa: E402

MICRO_BATCHES = 8


class OneProcess:
    writes = True

    def __init__(self, task, options):
        torch.set_num_threads(2)
        self.task = task
        self.model, = task.parts(1)
        self.compiled = torch.compile(self.model) if options.compile else self.model

    def backward(self, inputs, targets):
        self.task.loss(self.compiled(*inputs), targets).backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)

    def quality(self):
        batches = list(self.task.held_batches())
        return self.task.quality([self.compiled(*inputs) for inputs, _ in batches], [targets for _, targets in batches])


class Stages:
    def __init__(self, task, options):
        import torch.distributed as dist
        from torch.distributed.pipelining import PipelineStage, Schedule1F1B
        torch.set_num_threads(1)
        self.dist, self.task, self.last = dist, task, options.stages - 1
        self.rank = dist.get_rank()
        self.writes = self.rank == self.last
        parts = task.parts(options.stages)
        self.model = parts[self.rank]
        stage = PipelineStage(self.model, self.rank, options.stages, torch.device("cpu"), *self.examples(parts))
        self.schedule = Schedule1F1B(stage, MICRO_BATCHES, loss_fn=task.loss)

    def examples(self, parts):
        """Inputs and output of this stage for one micro-batch. Without them PyTorch runs the stage on uninitialised memory to
        learn its shapes, which puts NaN into the running statistics of batch norms."""
        inputs, _ = self.task.batch(0)
        x = tuple(each[: len(each) // MICRO_BATCHES] for each in inputs)
        for part in parts[: self.rank + 1]:
            inputs, x = x, (copy.deepcopy(part)(*x).detach().requires_grad_(),)
        return inputs, x

    def backward(self, inputs, targets):
        self.schedule.step(*(inputs if self.rank == 0 else ()), target=targets if self.rank == self.last else None,
                           return_outputs=False)
        gradients = [p.grad for p in self.model.parameters()]
        squares = torch.nn.utils.get_total_norm(gradients, foreach=True).square()
        self.dist.all_reduce(squares)
        torch.nn.utils.clip_grads_with_norm_(self.model.parameters(), 1.0, squares.sqrt(), foreach=True)

    def quality(self):
        outputs, labels = [], []
        for inputs, targets in self.task.held_batches():
            if self.rank > 0:
                inputs = [self.receive()]
            out = self.model(*inputs)
            if self.rank < self.last:
                self.send(out)
            outputs.append(out)
            labels.append(targets)
        found = [self.task.quality(outputs, labels) if self.rank == self.last else None]
        self.dist.broadcast_object_list(found, src=self.last)
        return found[0]

    def send(self, tensor):
        self.dist.send(torch.tensor([*tensor.shape, *[0] * (4 - tensor.dim())]), self.rank + 1)
        self.dist.send(tensor.contiguous(), self.rank + 1)

    def receive(self):
        shape = torch.empty(4, dtype=torch.long)
        self.dist.recv(shape, self.rank - 1)
        tensor = torch.empty([n for n in shape.tolist() if n > 0])
        self.dist.recv(tensor, self.rank - 1)
        return tensor


def train(options):
    begin = time.time()
    torch.manual_seed(options.seed)
    task = TASKS[options.task]()
    trained = (Stages if options.stages > 1 else OneProcess)(task, options)
    optimizers = optimizers_of(task, trained.model)
    at_most = "<=" in options.target
    name, value = options.target.split("<=" if at_most else ">=")
    run = {"format": "strata run 1", "status": "missed", "target": options.target, "seconds": 0.0, "title": f"PyTorch, {options.task}",
           "version": torch.__version__, "machine": "", "ranks": options.stages, "seed": options.seed, "restarts": 0,
           "began_milliseconds": int(begin * 1000), "median_step_seconds": 0.0, "joules": None, "validations": [], "recipe": ""}
    seconds = []
    for step in range(task.steps):
        step_begin = time.time()
        set_rate(task, optimizers, step)
        trained.backward(*task.batch(step))
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        seconds.append(time.time() - step_begin)
        if (step + 1) % task.every:
            continue
        trained.model.eval()
        with torch.no_grad():
            found = trained.quality()
        trained.model.train()
        run["seconds"] = time.time() - begin
        run["validations"].append({"step": step + 1, "samples": 0, "seconds": run["seconds"], "val_loss": found["val_loss"],
                                   "metrics": {key: each for key, each in found.items() if key != "val_loss"}})
        if (found[name] <= float(value)) if at_most else (found[name] >= float(value)):
            run["status"] = "reached"
            break
    run["median_step_seconds"] = sorted(seconds)[len(seconds) // 2]
    if trained.writes:
        Path(options.out).write_text(json.dumps(run))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("task", choices=list(TASKS))
    parser.add_argument("--target", required=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", required=True)
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--compile", action="store_true")
    how.add_argument("--stages", type=int, default=1)
    options = parser.parse_args()
    if options.stages > 1 and not is_rank():
        start_ranks(options.stages, 1)
        return
    if options.stages > 1:
        join()
    train(options)


if __name__ == "__main__":
    main()
