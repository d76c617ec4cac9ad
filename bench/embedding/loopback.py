#!/usr/bin/env python3
"""Compares `strata embed-server` with PERSIA's parameter server on one machine: rounds, medians, a table.

    python3 bench/embedding/loopback.py [--rounds 5] [--rows 100000] [--widths 16 64] [--persia FOLDER --nats PROGRAM]

Ours answers over TCP, as PERSIA's HTTP does, and over a unix socket, which is what a recipe names on one
machine. `plain` are sockets that carry ids, rows and gradients and do nothing with them: the floor of each.

What is claimed and how it is measured: bench/embedding/README.md. PERSIA's server listens on every
interface, so everything runs in a network namespace that has nothing but loopback.
"""

import argparse
import fcntl
import json
import os
import socket
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import contest  # noqa: E402
from contest import summary  # noqa: E402
from resident import ROOT  # noqa: E402
from run import DRAW, spread  # noqa: E402

PROGRAM = ROOT / "build/release/bench/embedding/loopback_bench"
INSIDE = "STRATA_BENCH_NAMESPACE"
FEATURES = 26
ADAGRAD = {"kind": "adagrad", "learning_rate": 0.05, "initial_accumulator": 0.01}
MEASURES = ("read", "update")
RATES = ("per_second", "per_server_second")


def options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rows", type=int, nargs="+", default=[100_000])
    parser.add_argument("--widths", type=int, nargs="+", default=[16, 64])
    parser.add_argument("--skews", type=float, nargs="+", default=[0, 1.05])
    parser.add_argument("--wires", nargs="+", default=["fp32", "fp16"],
                        choices=("fp32", "fp16", "scaled_fp16"), help="of rows and gradients")
    parser.add_argument("--sockets", nargs="+", default=["tcp", "unix"], choices=("tcp", "unix"))
    parser.add_argument("--batch", type=int, default=16384, help="ids before the same ones are found")
    parser.add_argument("--seconds", type=float, default=0.5, help="of each measure, a turn")
    parser.add_argument("--core", type=int, default=0, help="that everything runs on")
    parser.add_argument("--persia", help="folder of PERSIA's server; without, no peer")
    parser.add_argument("--nats", default="nats-server", help="program of nats-server, for PERSIA's")
    parsed = parser.parse_args()
    if not PROGRAM.exists():
        sys.exit(f"loopback: no {PROGRAM}; run `ninja -C build/release loopback_bench` first")
    return parsed


def enter_namespace():
    """Starts over where there is only loopback, and sets that up."""
    if INSIDE not in os.environ:
        os.environ[INSIDE] = "1"
        os.execvp("unshare", ["unshare", "--user", "--map-root-user", "--net", sys.executable,
                              *sys.argv])
    with socket.socket() as any_socket:  # SIOCSIFFLAGS: up, loopback, running
        fcntl.ioctl(any_socket, 0x8914, struct.pack("16sH14x", b"lo", 0x49))


def loopback_bytes():
    """That the namespace's only device has carried: with headers and acknowledgements."""
    for line in Path("/proc/self/net/dev").read_text().splitlines():
        if line.strip().startswith("lo:"):
            return int(line.split(":")[1].split()[0])
    sys.exit("loopback: no device lo")


def await_listener(address, process):
    """Until somebody listens; without a connection, which a plain server would take for its client."""
    port = "" if address.startswith("unix:") else f":{int(address.split(':')[1]):04X}"
    for _ in range(600):
        if process.poll() is not None:
            sys.exit(f"loopback: {process.args[0]} ended with {process.returncode}")
        if address.startswith("unix:"):
            sockets = Path("/proc/self/net/unix").read_text()
            if address[5:] in sockets:
                return
        else:  # state 0A: listens
            lines = [line.split() for table in ("tcp", "tcp6")
                     for line in Path(f"/proc/self/net/{table}").read_text().splitlines()[1:]]
            if any(line[1].endswith(port) and line[3] == "0A" for line in lines):
                return
        time.sleep(0.05)
    sys.exit(f"loopback: {process.args[0]} does not listen at {address}")


class Processes:
    """What was started, and ends with it, last first."""

    def __init__(self):
        self.started = []

    def start(self, command, folder, environment=None, **streams):
        log = open(Path(folder) / f"{len(self.started)}.log", "wb")
        streams.setdefault("stdout", log)
        process = subprocess.Popen([str(word) for word in command], stderr=log, cwd=folder,
                                   env={**os.environ, **(environment or {})}, **streams)
        self.started.append(process)
        return process

    def end(self):
        for process in reversed(self.started):
            process.terminate()
            process.wait()


class Contestant:
    """A server and its client."""

    def __init__(self, kind, server, address, size, chosen, folder, processes):
        rows, width, batches = size
        self.folder = Path(folder)
        self.client = processes.start(
            [PROGRAM, kind.rsplit(":", 1)[0], address, server.pid, rows, width, batches, chosen.batch, chosen.seconds,
             "features.json"], folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.answer()

    def answer(self):
        line = self.client.stdout.readline()
        if not line:
            logs = [path.read_text(errors="replace")[-1000:] for path in self.folder.glob("*.log")]
            sys.exit("loopback: a client ended; the logs say\n" + "\n".join(filter(None, logs)))
        return line

    def run(self, what):
        before = loopback_bytes()
        self.client.stdin.write(what + "\n")
        self.client.stdin.flush()
        result = json.loads(self.answer())
        if "samples" in result:
            time.sleep(0.2)  # acknowledgements
            result["bytes_per_sample"] = (loopback_bytes() - before) / result["samples"]
        return result


def start_strata(processes, folder, address):
    server = processes.start(
        [contest.STRATA, "embed-server", "--features", "features.json", "--folder",
         f"rows-{len(processes.started)}", "--listen", address], folder)
    await_listener(address, server)
    return server


def start_plain(processes, folder, address):
    server = processes.start([PROGRAM, "plain-server", address], folder)
    await_listener(address, server)
    return server


def start_persia(processes, folder, address, chosen, rows, width):
    nats = processes.start([chosen.nats, "-a", "127.0.0.1", "-p", "4222"], folder)
    await_listener("127.0.0.1:4222", nats)
    port = address.split(":")[1]
    # Room for all rows, and nothing else to do: what it would report and dump is off.
    Path(folder, "global.yaml").write_text(json.dumps({
        "common_config": {"metrics_config": {"enable_metrics": False, "job_name": "bench"}},
        "embedding_parameter_server_config": {"capacity": 4 * rows + 1_000_000}}))
    Path(folder, "embedding.yaml").write_text(json.dumps({
        "slots_config": {f"f{i}": {"dim": width} for i in range(FEATURES)}}))
    server = processes.start(
        [Path(chosen.persia).resolve() / "persia-embedding-parameter-server", "--port", port,
         "--replica-index", 0, "--replica-size", 1, "--global-config", "global.yaml",
         "--embedding-config", "embedding.yaml"], folder,
        {"PERSIA_SOCKET_IFNAME": "lo", "PERSIA_NATS_URL": "nats://127.0.0.1:4222"})
    await_listener(address, server)
    return server


def measure(rows, width, skew, chosen, samples):
    """Rounds of one size; with `samples` also their bytes, once."""
    with tempfile.TemporaryDirectory() as folder:
        batches = f"{folder}/batches"
        subprocess.run([contest.PYTHON, "-c", DRAW, str(rows), str(skew), batches], check=True)
        Path(folder, "features.json").write_text(json.dumps({"features": [
            {"name": f"f{i}", "width": width, "optimizer": ADAGRAD} for i in range(FEATURES)]}))
        kinds = [f"strata:{wire}:{kind}" for kind in chosen.sockets for wire in chosen.wires]
        kinds += [f"plain:{kind}" for kind in chosen.sockets]
        kinds += ["persia:tcp"] if chosen.persia else []
        processes = Processes()
        try:
            contestants = {}
            for port, kind in enumerate(kinds, 7001):
                address = (f"unix:{folder}/{port}" if kind.endswith(":unix")
                           else f"127.0.0.1:{port}")
                if kind == "persia:tcp":
                    server = start_persia(processes, folder, address, chosen, rows, width)
                else:
                    start = start_plain if kind.startswith("plain") else start_strata
                    server = start(processes, folder, address)
                contestants[kind] = Contestant(kind, server, address, (rows, width, batches), chosen,
                                               folder, processes)
            results = []
            for number in range(-1, chosen.rounds):  # -1 finds the pages, and doesn't count
                result = {}
                for kind in (kinds if number % 2 == 0 else kinds[::-1]):
                    for what in MEASURES:
                        result[f"{kind} {what}"] = contestants[kind].run(what)
                rates = "  ".join(f"{name} {entry['per_second'] / 1e6:.2f}"
                                  for name, entry in result.items())
                print(f"{rows} x {width}, skew {skew}  round {number + 1}/{chosen.rounds}  {rates}",
                      file=sys.stderr)
                results.append(result)
            carried = {f"{kind} {what}": contestants[kind].run(what)["bytes_per_sample"]
                       for kind in kinds if kind.endswith("tcp") and not kind.startswith("plain")
                       for what in ("numbers", "hashes")} if samples else {}
        finally:
            processes.end()
    return results[1:], carried


def summarise(rounds):
    result = {}
    for rate in RATES:
        result[rate] = {name: summary([r[name][rate] for r in rounds]) for name in rounds[0]}
        ours = [name for name in rounds[0] if name.startswith("strata")]
        for peer in ("persia", "plain"):
            pairs = {name: f"{peer}:{'tcp' if peer == 'persia' else name.split()[0].split(':')[2]} "
                           f"{name.split()[1]}" for name in ours}
            result[f"{rate} against {peer}"] = {
                name: summary([r[name][rate] / r[other][rate] for r in rounds])
                for name, other in pairs.items() if other in rounds[0]}
    return result


def table(results):
    """A line a contestant; first server and client together, then the server alone."""
    lines = ["| rows | width | ids | contestant | M reads/s | ratio | M updates/s | ratio | "
             "M reads/s of the server | ratio | M updates/s of the server | ratio | "
             "reads of a plain socket | updates |", "| --- " * 14 + "|"]
    for entry in results:
        for kind in dict.fromkeys(name.split()[0] for name in entry[RATES[0]]):
            cells = [f"{entry['rows']:.0e}", str(entry["width"]),
                     f"Zipf {entry['skew']}" if entry["skew"] else "uniform", kind]
            for rate in RATES:
                for what in MEASURES:
                    ratio = entry.get(f"{rate} against persia", {}).get(f"{kind} {what}")
                    cells += [spread(entry[rate][f"{kind} {what}"]),
                              spread(ratio, 1) + "×" if ratio else ""]
            for what in MEASURES:  # the share of the floor
                share = entry[f"{RATES[0]} against plain"].get(f"{kind} {what}")
                cells.append(f"{100 * share['median']:.0f} %" if share else "")
            lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main():
    chosen = options()
    enter_namespace()
    os.sched_setaffinity(0, {chosen.core})
    results, rounds, carried = [], [], {}
    for rows in chosen.rows:
        for width in chosen.widths:
            for skew in chosen.skews:
                # Bytes of samples don't depend on rows or skew.
                samples = width == 16 and not carried
                measured, bytes_of = measure(rows, width, skew, chosen, samples)
                carried = carried or bytes_of
                results.append({"rows": rows, "width": width, "skew": skew,
                                **summarise(measured)})
                rounds.append(measured)
    print("\n" + table(results))
    for name, count in carried.items():
        print(f"bytes a sample, {name}: {count:.0f}")
    contest.write(HERE, chosen, {"sizes": results, "bytes_per_sample": carried}, rounds)


if __name__ == "__main__":
    main()
