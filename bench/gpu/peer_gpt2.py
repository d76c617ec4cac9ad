#!/usr/bin/env python3
"""Trains GPT-2 124M in plain PyTorch, every way that PyTorch has to run it: the peers on a GPU.

    python3 bench/gpu/peer_gpt2.py [--modes eager,compile,reduce-overhead,graph,compile-graph] [--batches 1,4,16,32]

One training step is forward, backward, clipping at 1.0 and fused AdamW, bf16 autocast over fp32
weights, SDPA. Medians of CUDA events over --steps steps after --warmup. MFU is of 989.4 TFLOP/s with
6 N + 6 L C T operations a token (causal), N without the positions. --deterministic allows
deterministic algorithms alone; graph and compile-graph record a whole step by hand. Prints one line a
combination, with --json a JSON object; a mode that fails says so.
"""

import argparse
import json
import os
import statistics
import sys
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from torch_gpt import ADAMW, Block, weight_groups  # noqa: E402

PEAK = 989.4e12


class Gpt(nn.Module):
    def __init__(self, vocab, context, layers, width, heads):
        super().__init__()
        self.tokens = nn.Embedding(vocab, width)
        self.positions = nn.Parameter(torch.empty(context, width))
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, tokens, targets):
        x = self.tokens(tokens) + self.positions[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.norm(x), self.tokens.weight)
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.view(-1))


def measure(mode, batch, args, device):
    torch.manual_seed(1)
    model = Gpt(args.vocab, args.length, args.layers, args.width, args.heads).to(device)
    flops = 6 * (sum(p.numel() for p in model.parameters()) - model.positions.numel())
    flops += 6 * args.layers * args.width * args.length
    cuda = device == "cuda"
    recorded = mode in ("graph", "compile-graph")
    optimizer = torch.optim.AdamW(
        weight_groups(model),
        **{**ADAMW, "lr": torch.tensor(3e-4, device=device) if recorded else 3e-4, "capturable": recorded},
    )
    loss_of = model
    if mode in ("compile", "compile-graph"):
        loss_of = torch.compile(model)
    elif mode == "reduce-overhead":
        loss_of = torch.compile(model, mode="reduce-overhead")
    tokens = torch.randint(args.vocab, (batch, args.length), device=device)
    targets = torch.randint(args.vocab, (batch, args.length), device=device)

    def step():
        optimizer.zero_grad(set_to_none=not recorded)
        with torch.autocast(device, torch.bfloat16):
            loss = loss_of(tokens, targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss

    run = step
    if recorded:
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                step()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            step()
        run = graph.replay
    began = time.time()
    for _ in range(args.warmup):
        run()
    if cuda:
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
    warmup = time.time() - began
    times = []
    for _ in range(args.steps):
        if cuda:
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            run()
            end.record()
            end.synchronize()
            times.append(begin.elapsed_time(end) / 1e3)
        else:
            began = time.time()
            run()
            times.append(time.time() - began)
    seconds = statistics.median(times)
    rate = batch * args.length / seconds
    memory = torch.cuda.max_memory_allocated() / 2**30 if cuda else 0
    if args.json:
        print(json.dumps({"mode": mode, "batch": batch, "seconds": times, "tokens_per_second": rate,
                          "mfu": rate * flops / PEAK, "peak_bytes": memory * 2**30}), flush=True)
        return
    print(
        f"{mode:16} batch {batch:3}  {seconds * 1e3:8.2f} ms  {rate / 1e3:8.1f} k tokens/s  "
        f"MFU {100 * rate * flops / PEAK:5.1f} %  peak {memory:5.1f} GiB  warm-up {warmup:.0f} s",
        flush=True,
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--modes", default="eager,graph,compile,reduce-overhead")
    parser.add_argument("--batches", default="1,4,16,32")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--warmup", type=int, default=5)
    parser.add_argument("--vocab", type=int, default=50304)
    parser.add_argument("--length", type=int, default=1024)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--heads", type=int, default=12)
    parser.add_argument("--deterministic", action="store_true")
    parser.add_argument("--json", action="store_true", help="a line of JSON each")
    args = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.set_float32_matmul_precision("high")
    if args.deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True)
        torch.backends.cuda.enable_cudnn_sdp(False)
        torch.utils.deterministic.fill_uninitialized_memory = False
    if not args.json:
        print(f"torch {torch.__version__} on {torch.cuda.get_device_name() if device == 'cuda' else device}")
    for mode in args.modes.split(","):
        for batch in map(int, args.batches.split(",")):
            try:
                measure(mode, batch, args, device)
            except Exception as error:  # a mode may not fit or not capture: say so and go on
                print(f"{mode:16} batch {batch:3}  FAILED {type(error).__name__}: {str(error).splitlines()[0][:160]}")
            if device == "cuda":
                torch.cuda.empty_cache()
            torch.compiler.reset()


if __name__ == "__main__":
    main()
