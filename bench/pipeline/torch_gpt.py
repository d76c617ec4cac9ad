"""The peer: the GPT of recipes/bench.yaml in plain PyTorch, in one process or on torch's pipeline.

The same sizes and the same arithmetic as strata/models/gpt: pre-norm blocks, learned positions,
tanh-GELU, fused causal attention, untied head, fp32, AdamW, global-norm clipping at 1.0.
"""

import os
import time
from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe


@dataclass(frozen=True)
class Sizes:
    layers: int
    width: int
    heads: int
    vocab: int
    context: int
    mini_batch: int
    micro_batch: int

    @property
    def micro_batches(self):
        return self.mini_batch // self.micro_batch

    @property
    def tokens(self):
        return self.mini_batch * self.context


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def attention(self, x):
        batch, length, width = x.shape
        q, k, v = (
            part.view(batch, length, self.heads, width // self.heads).transpose(1, 2)
            for part in self.qkv(x).split(width, dim=2)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(batch, length, width))

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Stage(nn.Module):
    """Blocks [begin, end) of the model, with the embedding on the first and the head on the last."""

    def __init__(self, sizes, begin, end):
        super().__init__()
        self.embed = self.positions = self.head = None
        if begin == 0:
            self.embed = nn.Embedding(sizes.vocab, sizes.width)
            self.positions = nn.Parameter(torch.empty(sizes.context, sizes.width))
        self.blocks = nn.ModuleList(Block(sizes.width, sizes.heads) for _ in range(begin, end))
        if end == sizes.layers:
            self.norm = nn.LayerNorm(sizes.width)
            self.head = nn.Linear(sizes.width, sizes.vocab, bias=False)
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, x):
        if self.embed is not None:
            x = self.embed(x) + self.positions
        for block in self.blocks:
            x = block(x)
        return x if self.head is None else self.head(self.norm(x))


def make_optimizer(model):
    matrices = [p for p in model.parameters() if p.dim() > 1]
    others = [p for p in model.parameters() if p.dim() <= 1]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.95), fused=True)


def make_batch(sizes, generator):
    text = torch.randint(sizes.vocab, (sizes.mini_batch, sizes.context + 1), generator=generator)
    return text[:, :-1].contiguous(), text[:, 1:].contiguous()


def token_loss(sizes):
    """Share of the mini-batch's mean loss, so that gradients add up without a scaling pass."""

    def loss(logits, targets):
        total = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum")
        return total / sizes.tokens

    return loss


def clip(parameters, distributed):
    gradients = [p.grad for p in parameters]
    norm = torch.nn.utils.get_total_norm(gradients, foreach=True)
    if distributed:
        squares = norm.square()
        dist.all_reduce(squares)
        norm = squares.sqrt()
    torch.nn.utils.clip_grads_with_norm_(parameters, 1.0, norm, foreach=True)


def timed_steps(steps, step):
    seconds = []
    for _ in range(steps):
        begin = time.perf_counter()
        step()
        seconds.append(time.perf_counter() - begin)
    return seconds


def peak_resident_bytes():
    with open("/proc/self/status") as status:
        for line in status:
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    raise RuntimeError("no VmHWM in /proc/self/status")


def train_eager(sizes, steps, threads):
    """One process; gradients of the micro-batches accumulate in .grad."""
    torch.set_num_threads(threads)
    at_start = peak_resident_bytes()
    model = Stage(sizes, 0, sizes.layers)
    optimizer = make_optimizer(model)
    parameters = list(model.parameters())
    generator = torch.Generator().manual_seed(1)
    loss_of = token_loss(sizes)
    losses = []

    def step():
        inputs, targets = make_batch(sizes, generator)
        total = 0.0
        for x, y in zip(inputs.split(sizes.micro_batch), targets.split(sizes.micro_batch)):
            loss = loss_of(model(x), y)
            loss.backward()
            total += loss.item()
        clip(parameters, distributed=False)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(total)

    seconds = timed_steps(steps, step)
    return {"step_seconds": seconds, "losses": losses, "resident_bytes": [peak_resident_bytes()],
            "resident_bytes_at_start": [at_start]}


def train_pipeline(sizes, steps, threads, schedule_name):
    """One process of a pipeline; rank and world come from the environment. None but on rank 0."""
    torch.set_num_threads(threads)
    at_start = peak_resident_bytes()
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group("gloo", init_method=os.environ["PEER_RENDEZVOUS"], rank=rank,
                            world_size=world)
    bounds = [sizes.layers * s // world for s in range(world + 1)]
    model = Stage(sizes, bounds[rank], bounds[rank + 1])
    schedule = {"gpipe": ScheduleGPipe, "1f1b": Schedule1F1B}[schedule_name](
        PipelineStage(model, rank, world, torch.device("cpu")), sizes.micro_batches,
        loss_fn=token_loss(sizes), scale_grads=False)
    optimizer = make_optimizer(model)
    parameters = list(model.parameters())
    generator = torch.Generator().manual_seed(1)
    last = rank == world - 1
    losses = []

    def step():
        inputs, targets = make_batch(sizes, generator)
        micro_losses = []
        arguments = (inputs,) if rank == 0 else ()
        schedule.step(*arguments, target=targets if last else None,
                      losses=micro_losses if last else None, return_outputs=False)
        clip(parameters, distributed=True)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(sum(loss.item() for loss in micro_losses))

    seconds = timed_steps(steps, step)
    mine = {"seconds": seconds, "losses": losses, "peak": peak_resident_bytes(), "start": at_start}
    everyone = [None] * world
    dist.all_gather_object(everyone, mine)
    dist.destroy_process_group()
    if rank:
        return None
    return {"step_seconds": [max(times) for times in zip(*(m["seconds"] for m in everyone))],
            "losses": everyone[-1]["losses"],
            "resident_bytes": [m["peak"] for m in everyone],
            "resident_bytes_at_start": [m["start"] for m in everyone]}


def gemm_flops_per_second(sizes, seconds, threads):
    """Rate of the model's own matrix products (a block's four, one micro-batch), back to back."""
    torch.set_num_threads(threads)
    rows, width = sizes.micro_batch * sizes.context, sizes.width
    pairs = [(torch.randn(rows, a * width), torch.randn(a * width, b * width))
             for a, b in ((1, 3), (1, 1), (1, 4), (4, 1))]
    outputs = [x @ w for x, w in pairs]
    flops = sum(2 * x.shape[0] * x.shape[1] * w.shape[1] for x, w in pairs)
    rounds, begin = 0, time.perf_counter()
    while time.perf_counter() - begin < seconds:
        for (x, w), out in zip(pairs, outputs):
            torch.mm(x, w, out=out)
        rounds += 1
    return rounds * flops / (time.perf_counter() - begin)
