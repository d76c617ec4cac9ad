#!/usr/bin/env python3
"""Times steps of DeepSpeedCPUAdam between its casts from and to bf16.

    deepspeed_peer.py NUMEL THREADS SECONDS     reads and answers as host_adam.cpp, of any name

DeepSpeed compiles the operator for this processor when it first runs.
"""

import json
import os
import sys
import time

os.environ.setdefault("DS_ACCELERATOR", "cpu")

import torch  # noqa: E402
from deepspeed.ops.adam import DeepSpeedCPUAdam  # noqa: E402


def main():
    numel, threads, seconds = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    torch.set_num_threads(threads)
    drawn = torch.rand(1 << 16)

    def numbers(size, dtype):
        return drawn.mul(size).to(dtype).repeat((numel + len(drawn) - 1) // len(drawn))[:numel]

    weights = torch.nn.Parameter(numbers(0.1, torch.float32))
    narrow, given = weights.detach().to(torch.bfloat16), numbers(1e-2, torch.bfloat16)
    weights.grad = torch.zeros(numel)
    optimizer = DeepSpeedCPUAdam([weights], lr=1e-3, betas=(0.9, 0.95), eps=1e-8,
                                 weight_decay=0.1, adamw_mode=True)

    def step():
        with torch.no_grad():
            weights.grad.copy_(given)
        optimizer.step()
        with torch.no_grad():
            narrow.copy_(weights)

    for _ in sys.stdin:
        step()
        took = []
        while not took or sum(took) < seconds:
            began = time.perf_counter()
            step()
            took.append(time.perf_counter() - began)
        print(json.dumps(took), flush=True)


if __name__ == "__main__":
    main()
