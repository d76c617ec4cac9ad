#!/usr/bin/env python3
"""Trains beside servers of rows whose network is slow: synchronous training waits, hybrid does not.

    python3 bench/rows_delay/run.py [--rounds 3] [--steps 150]

What is claimed and how it is measured: bench/rows_delay/README.md.
"""

import argparse
import json
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
PROGRAM = str(ROOT / "build/release/strata")
RECIPE = str(ROOT / "bench/rows_delay/recipe.yaml")
DELAYS = (0, 1, 5, 20)  # milliseconds, each way
TRAININGS = (("synchronous", 1), ("hybrid", 16))


class Proxy:
    """Hands bytes on a little later, each way, to a server of loopback."""

    def __init__(self, port, delay):
        self.target, self.delay = port, delay
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self.target))
            for one, other in ((client, server), (server, client)):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                queue, ready = deque(), threading.Condition()
                threading.Thread(target=self.read, args=(one, queue, ready), daemon=True).start()
                threading.Thread(target=self.write, args=(other, queue, ready), daemon=True).start()

    def read(self, source, queue, ready):
        data = b"."
        while data:
            try:
                data = source.recv(1 << 18)
            except OSError:
                data = b""
            with ready:
                queue.append((time.monotonic() + self.delay, data))
                ready.notify()

    def write(self, target, queue, ready):
        while True:
            with ready:
                ready.wait_for(lambda: queue)
                due, data = queue.popleft()
            time.sleep(max(0, due - time.monotonic()))
            try:
                if not data:
                    target.shutdown(socket.SHUT_WR)
                    return
                target.sendall(data)
            except OSError:
                return

    def close(self):
        self.listener.close()


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return probe.getsockname()[1]


def train(delay, staleness, steps):
    """Samples a second of the median step, and the AUC of the validation samples."""
    ports = [free_port(), free_port()]
    addresses = [f"127.0.0.1:{port}" for port in ports]
    servers, proxies = [], []
    with tempfile.TemporaryDirectory() as folder:
        try:
            for shard in (0, 1):
                server = subprocess.Popen(
                    [PROGRAM, "embed-server", RECIPE, "--set", f"embedding.servers={json.dumps(addresses)}", "--shard",
                     str(shard), "--folder", f"{folder}/rows-{shard}"], stdout=subprocess.PIPE, text=True)
                servers.append(server)
                if "embed-server" not in server.stdout.readline():
                    sys.exit("run: a server did not start")
            proxies = [Proxy(port, delay / 1000) for port in ports]
            through = [f"127.0.0.1:{proxy.port}" for proxy in proxies]
            metrics = f"{folder}/metrics.jsonl"
            done = subprocess.run(
                [PROGRAM, "train", RECIPE, "--set", f"embedding.servers={json.dumps(through)}", "--set",
                 f"embedding.staleness={staleness}", "--set", f"train.steps={steps}", "--metrics", metrics],
                capture_output=True, text=True)
            if done.returncode != 0:
                sys.exit(done.stderr)
            records = [json.loads(line) for line in Path(metrics).read_text().splitlines()]
            seconds = statistics.median(record["step_seconds"] for record in records[steps // 3:])
            batch = records[1]["samples_seen"] - records[0]["samples_seen"]
            auc = float(re.search(r"auc ([\d.]+)", done.stdout)[1])
            return batch / seconds, auc
        finally:
            for server in servers:
                server.terminate()
                server.wait()
            for proxy in proxies:
                proxy.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=150)
    options = parser.parse_args()
    if not Path(PROGRAM).exists():
        sys.exit(f"run: no {PROGRAM}; run `make build` first")
    found = {}
    for number in range(options.rounds):
        cases = [(name, staleness, delay) for delay in DELAYS for name, staleness in TRAININGS]
        for name, staleness, delay in cases if number % 2 == 0 else reversed(cases):
            found.setdefault((name, delay), []).append(train(delay, staleness, options.steps))
            rate, auc = found[name, delay][-1]
            print(f"round {number + 1}/{options.rounds}  {name:11}  {delay:2} ms  {rate:8.0f} samples/s  auc {auc:.4f}",
                  file=sys.stderr)
    print("| delay each way | training | samples/s, median | spread | of its own without delay | AUC |")
    print("| --- | --- | --- | --- | --- | --- |")
    for delay in DELAYS:
        for name, _ in TRAININGS:
            rates = [rate for rate, _ in found[name, delay]]
            shares = [rate / base for (rate, _), (base, _) in zip(found[name, delay], found[name, 0])]
            print(f"| {delay} ms | {name} | {statistics.median(rates):.0f} | {min(rates):.0f} - {max(rates):.0f} | "
                  f"{statistics.median(shares):.2f} | {found[name, delay][0][1]:.4f} |")
    folder = Path(__file__).resolve().parent / "results"
    folder.mkdir(exist_ok=True)
    path = folder / time.strftime("%Y%m%d-%H%M%S.json")
    path.write_text(json.dumps([{"training": name, "delay_ms": delay, "runs": runs}
                                for (name, delay), runs in found.items()], indent=1))
    print(f"\n{path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
