#!/usr/bin/env python3
"""Trains with row servers on a slow network: synchronous training waits, hybrid does not.

    python3 bench/rows_delay/run.py [--rounds 3] [--steps 150]

What is claimed and how it is measured: bench/rows_delay/README.md.
"""

import argparse
import json
import os
import re
import socket
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import contest  # noqa: E402
from resident import ROOT  # noqa: E402

PROGRAM = os.environ.get("STRATA", str(ROOT / "build/release/strata"))
PROXY = os.environ.get("DELAY_PROXY", str(ROOT / "build/release/bench/rows_delay/delay_proxy"))
RECIPE = str(ROOT / "bench/rows_delay/recipe.yaml")
DELAYS = (0, 1, 5, 20)  # milliseconds, each way
TRAININGS = (("synchronous", 1), ("hybrid", 16))


class Proxy:
    """bench/rows_delay/delay_proxy.cpp: before each port another one, whose bytes come a little later."""

    def __init__(self, ports, delay):
        self.process = subprocess.Popen([PROXY, str(delay), *map(str, ports)], stdout=subprocess.PIPE, text=True)
        self.ports = [int(self.process.stdout.readline()) for _ in ports]

    def close(self):
        """Seconds of a processor that it has used."""
        with open(f"/proc/{self.process.pid}/stat") as stat:
            fields = stat.read().rsplit(")", 1)[1].split()
        self.process.kill()
        self.process.wait()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return probe.getsockname()[1]


def train(delay, staleness, steps):
    """Returns, for the steps after the first third, samples per second, the share of the time that waits for rows,
    and the processor seconds of the proxy per second; and the AUC of the validation samples."""
    ports = [free_port(), free_port()]
    addresses = [f"127.0.0.1:{port}" for port in ports]
    servers, proxy = [], None
    with tempfile.TemporaryDirectory() as folder:
        try:
            for shard in (0, 1):
                server = subprocess.Popen(
                    [PROGRAM, "embed-server", RECIPE, "--set", f"embedding.servers={json.dumps(addresses)}", "--shard",
                     str(shard), "--folder", f"{folder}/rows-{shard}"], stdout=subprocess.PIPE, text=True)
                servers.append(server)
                if "embed-server" not in server.stdout.readline():
                    sys.exit("run: a server did not start")
            proxy = Proxy(ports, delay)
            through = [f"127.0.0.1:{port}" for port in proxy.ports]
            metrics = f"{folder}/metrics.jsonl"
            done = subprocess.run(
                [PROGRAM, "train", RECIPE, "--set", f"embedding.servers={json.dumps(through)}", "--set",
                 f"embedding.staleness={staleness}", "--set", f"train.steps={steps}", "--metrics", metrics],
                capture_output=True, text=True)
            if done.returncode != 0:
                sys.exit(done.stderr)
            records = [json.loads(line) for line in Path(metrics).read_text().splitlines()]
            measured = records[steps // 3:]
            seconds = sum(record["step_seconds"] for record in measured)
            samples = measured[-1]["samples_seen"] - records[steps // 3 - 1]["samples_seen"]
            waited = sum(record["embedding"]["wait_seconds"] for record in measured)
            used, proxy = proxy.close(), None
            return {"rate": samples / seconds, "waits": waited / seconds,
                    "proxy": used / sum(record["step_seconds"] for record in records),
                    "auc": float(re.search(r"auc ([\d.]+)", done.stdout)[1])}
        finally:
            for server in servers:
                server.terminate()
                server.wait()
            if proxy:
                proxy.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=300)
    options = parser.parse_args()
    for needed in (PROGRAM, PROXY):
        if not Path(needed).exists():
            sys.exit(f"run: no {needed}; run `make build` and `ninja -C build/release delay_proxy` first")
    found = {(name, delay): [] for name, _ in TRAININGS for delay in DELAYS}

    def measure(name, staleness, delay):
        run = train(delay, staleness, options.steps)
        print(f"{name:11}  {delay:2} ms  {run['rate']:8.0f} samples/s, {100 * run['waits']:4.1f} % waiting, "
              f"proxy {100 * run['proxy']:.0f} % of a core, auc {run['auc']:.4f}", file=sys.stderr)
        return run

    # Between runs without delay, so that other load affects both: a share is relative to the mean
    # of its neighbours.
    for _ in range(options.rounds):
        for name, staleness in TRAININGS:
            before = measure(name, staleness, 0)
            for delay in DELAYS[1:]:
                run = measure(name, staleness, delay)
                after = measure(name, staleness, 0)
                run["share"] = 2 * run["rate"] / (before["rate"] + after["rate"])
                found[name, delay].append(run)
                found[name, 0].append(before)
                before = after
    print("| delay each way | training | samples/s, median | of its own without delay | spread | waits for rows | AUC |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for delay in DELAYS:
        for name, _ in TRAININGS:
            runs = found[name, delay]
            shares = sorted(run.get("share", 1) for run in runs)
            aucs = {f"{run['auc']:.4f}" for run in runs}
            print(f"| {delay} ms | {name} | {statistics.median(run['rate'] for run in runs):.0f} | "
                  f"{statistics.median(shares):.2f} | {shares[0]:.2f} - {shares[-1]:.2f} | "
                  f"{100 * statistics.median(run['waits'] for run in runs):.1f} % | {', '.join(sorted(aucs))} |")
    contest.write(HERE, options, {}, [{"training": name, "delay_ms": delay, "runs": runs}
                                      for (name, delay), runs in found.items()])


if __name__ == "__main__":
    main()
