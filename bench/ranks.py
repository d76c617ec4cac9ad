"""Starts a Python peer once a rank. No torch: the process that starts ranks stays small."""

import os
import subprocess
import sys
import tempfile


def is_rank():
    return "RANK" in os.environ


def start_ranks(processes, threads, variables=None):
    """Runs this program again as so many ranks, to their end; returns what each printed."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "WORLD_SIZE": str(processes), "GLOO_SOCKET_IFNAME": "lo",
                       "PEER_RENDEZVOUS": f"file://{folder}/store",
                       "OMP_NUM_THREADS": str(threads), **(variables or {})}
        ranks = [subprocess.Popen([sys.executable, *sys.argv], stdout=subprocess.PIPE, text=True,
                                  env={**environment, "RANK": str(rank), "LOCAL_RANK": str(rank)})
                 for rank in range(processes)]
        printed = [rank.communicate()[0] for rank in ranks]
    if any(rank.returncode for rank in ranks):
        sys.exit(f"{sys.argv[0]}: a rank failed: {[rank.returncode for rank in ranks]}")
    return printed


def join():
    """Joins the ranks' Gloo group; returns this rank and their number."""
    import torch.distributed as dist

    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group("gloo", init_method=os.environ["PEER_RENDEZVOUS"], rank=rank,
                            world_size=world)
    return rank, world
