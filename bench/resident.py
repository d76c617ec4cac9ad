"""Runs a contestant and measures the memory of the processes that train.

The kernel keeps every process's high-water mark (VmHWM). It only grows, so reading it every few
milliseconds until the process has ended loses at most what is allocated in the last of them, when
the training is over. The processes that train are the direct children of what was started (ranks of
a launcher), or itself if it has none.
"""

import subprocess
import sys
import threading
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PERIOD_SECONDS = 0.02
PERIODS_PER_SEARCH = 20  # looking for children reads a file of every process of the machine


def children(parent):
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            after_name = path.read_text().rpartition(")")[2].split()
        except OSError:  # the process has ended
            continue
        if int(after_name[1]) == parent:
            found.append(int(path.parent.name))
    return found


def high_water_bytes(pid):
    """0 for a process that has ended."""
    try:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0


class Watch(threading.Thread):
    """Reads the marks of a process and of its children until stop()."""

    def __init__(self, pid):
        super().__init__(daemon=True)
        self.pid, self.ended = pid, threading.Event()
        self.own_bytes, self.child_bytes = 0, {}
        self.start()

    def run(self):
        period = 0
        while True:
            if period % PERIODS_PER_SEARCH == 0:
                for child in children(self.pid):
                    self.child_bytes.setdefault(child, 0)
            self.own_bytes = max(self.own_bytes, high_water_bytes(self.pid))
            for child, seen in self.child_bytes.items():
                self.child_bytes[child] = max(seen, high_water_bytes(child))
            period += 1
            if self.ended.wait(PERIOD_SECONDS):
                return

    def stop(self):
        self.ended.set()
        self.join()
        return sum(self.child_bytes.values()) or self.own_bytes


class Failed(Exception):
    """A command that did not end with 0; its text is the end of what the command said."""


def call(command, environment=None):
    """Runs a command to its end; returns its output and the peak resident bytes of what trains."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                               cwd=ROOT, env=environment)
    watch = Watch(process.pid)
    output = process.communicate()[0]
    resident_bytes = watch.stop()
    if process.returncode:
        raise Failed(f"{' '.join(command)} ended with {process.returncode}:\n{output[-4000:]}")
    return output, resident_bytes


def call_or_exit(command, environment=None):
    """Tries twice: now and then a peer's process dies while its threads are torn down."""
    for last in (False, True):
        try:
            return call(command, environment)
        except Failed as failure:
            if last:
                sys.exit(f"run: {failure}")
            print(f"run: {failure}\nrun: once more", file=sys.stderr)
