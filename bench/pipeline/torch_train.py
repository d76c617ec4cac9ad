"""Trains the peers' GPT in one process, or in one process a stage on torch's own pipeline."""

import contextlib

import torch
import torch.distributed as dist
from ranks import join
from torch.distributed.pipelining import (PipelineStage, Schedule1F1B, ScheduleGPipe,
                                          ScheduleInterleavedZeroBubble, ScheduleZBVZeroBubble)
from torch_gpt import (Stage, make_batch, make_optimizer, peak_resident_bytes, timed_steps,
                       token_loss)


def clip(parameters, distributed):
    gradients = [p.grad for p in parameters]
    norm = torch.nn.utils.get_total_norm(gradients, foreach=True)
    if distributed:
        squares = norm.square()
        dist.all_reduce(squares)
        norm = squares.sqrt()
    torch.nn.utils.clip_grads_with_norm_(parameters, 1.0, norm, foreach=True)


def with_recompute(model, recompute):
    """Blocks run again in backward: as a whole, or all operations but products and attention, whose outputs are
    saved (selective activation checkpointing)."""
    from torch.utils.checkpoint import (CheckpointPolicy, checkpoint,
                                        create_selective_checkpoint_contexts)

    aten = torch.ops.aten
    saved = {aten.mm.default, aten.addmm.default, aten.bmm.default,
             aten._scaled_dot_product_flash_attention_for_cpu.default}

    def policy(context, operator, *arguments, **keywords):
        return CheckpointPolicy.MUST_SAVE if operator in saved else CheckpointPolicy.PREFER_RECOMPUTE

    more = ({"context_fn": lambda: create_selective_checkpoint_contexts(policy)}
            if recompute == "operations" else {})
    for block in model.blocks:
        block.forward = lambda x, forward=block.forward: checkpoint(forward, x, use_reentrant=False, **more)


def train_eager(sizes, steps, threads, precision="fp32", compiled=False, recompute="nothing"):
    """One process; gradients of the micro-batches accumulate in .grad. `precision`: fp32, autocast
    (weights fp32, products and attention bf16) or bf16 (everything)."""
    torch.set_num_threads(threads)
    at_start = peak_resident_bytes()
    model = Stage(sizes, 0, sizes.layers)
    if precision == "bf16":
        model = model.bfloat16()
    mixed = (torch.autocast("cpu", dtype=torch.bfloat16) if precision == "autocast"
             else contextlib.nullcontext())
    optimizer = make_optimizer(model)
    parameters = list(model.parameters())
    if recompute != "nothing":
        with_recompute(model, recompute)
    if compiled:
        model = torch.compile(model)
    generator = torch.Generator().manual_seed(1)
    loss_of = token_loss(sizes.tokens)
    losses = []

    def step():
        inputs, targets = make_batch(sizes, generator)
        total = 0.0
        for x, y in zip(inputs.split(sizes.micro_batch), targets.split(sizes.micro_batch)):
            with mixed:
                logits = model(x)
            loss = loss_of(logits.float(), y)
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
    """One process of a pipeline; None but on rank 0."""
    torch.set_num_threads(threads)
    at_start = peak_resident_bytes()
    rank, world = join()
    # zbv: two stages a rank, placed in a V
    places = [rank, 2 * world - 1 - rank] if schedule_name == "zbv" else [rank]
    count = len(places) * world
    bounds = [sizes.layers * s // count for s in range(count + 1)]
    model = torch.nn.ModuleList(Stage(sizes, bounds[s], bounds[s + 1]) for s in places)
    stages = [PipelineStage(part, s, count, torch.device("cpu"))
              for part, s in zip(model, places)]
    several = {"zb1p": ScheduleInterleavedZeroBubble, "zbv": ScheduleZBVZeroBubble}
    one = {"gpipe": ScheduleGPipe, "1f1b": Schedule1F1B}
    schedule = (several[schedule_name](stages, sizes.micro_batches,
                                       loss_fn=token_loss(sizes.tokens), scale_grads=False)
                if schedule_name in several else
                one[schedule_name](stages[0], sizes.micro_batches,
                                   loss_fn=token_loss(sizes.tokens), scale_grads=False))
    optimizer = make_optimizer(model)
    parameters = list(model.parameters())
    generator = torch.Generator().manual_seed(1)
    last = count - 1 in places
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
            "losses": everyone[0 if schedule_name == "zbv" else -1]["losses"],
            "resident_bytes": [m["peak"] for m in everyone],
            "resident_bytes_at_start": [m["start"] for m in everyone]}
