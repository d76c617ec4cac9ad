"""Runs the built program in a temporary folder, with recipes that the test writes."""

import json
import os
import pathlib
import signal
import socket
import subprocess
import tempfile
import time
import unittest

PROGRAM = os.environ["STRATA_PROGRAM"]

RECIPE = """\
model:  {kind: gpt, layers: 4, width: 32, heads: 2, vocab: 256, context: 32, dropout: 0.1}
data:   {train: text.txt, tokenizer: bytes, validation_fraction: 0.1}
train:  {steps: 8, mini_batch: 8, micro_batch: 2, optimizer: {kind: adamw, learning_rate: 1e-3}, warmup: 2, clip: 1.0, seed: 1}
mesh:   {pp: 2, schedule: 1f1b, threads: 1}
memory: {recompute: cheap}
"""


def size_of(path):
    """0 if there is no file: the program removes a file that it makes only to test the path."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def text_of(path):
    try:
        return path.read_text()
    except FileNotFoundError:
        return ""


def end(process):
    with process:
        process.kill()


def free_ports(count):
    """Different ports of loopback on which no program listens now."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


class ProgramTest(unittest.TestCase):
    """A test in a fresh folder that holds recipe.yaml and text.txt."""

    def setUp(self):
        self._folder = tempfile.TemporaryDirectory()
        self.addCleanup(self._folder.cleanup)
        self.folder = pathlib.Path(self._folder.name)
        (self.folder / "recipe.yaml").write_text(RECIPE)
        (self.folder / "text.txt").write_text("In the beginning was the word. " * 400)
        self.environment = dict(os.environ, XDG_CACHE_HOME=str(self.folder / "cache"),
                                XDG_CONFIG_HOME=str(self.folder / "config"))

    def start(self, *arguments, **options):
        process = subprocess.Popen([PROGRAM, *arguments], cwd=self.folder, env=self.environment,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                   errors="replace", **options)
        self.addCleanup(end, process)  # a failing test leaves no process
        return process

    def await_steps(self, name, seconds=60):
        """Waits until the metrics of a started run have content: an empty file may only test the
        path."""
        path, deadline = self.folder / name, time.time() + seconds
        while time.time() < deadline and size_of(path) == 0:
            time.sleep(0.001)

    def run_program(self, *arguments):
        process = self.start(*arguments)
        out, err = process.communicate(timeout=300)
        return process.returncode, out, err

    def succeed(self, *arguments):
        code, out, err = self.run_program(*arguments)
        self.assertEqual(code, 0, err)
        return out

    def refuse(self, *arguments, says, code=2):
        """Expects exit code `code` and one error with a place, a fix and the words `says`."""
        got, out, err = self.run_program(*arguments)
        self.assertEqual(got, code, out + err)
        self.assertRegex(err, r"^\[[a-z_]+\.[a-z_]+\] ")
        self.assertIn("fix", err)
        for words in [says] if isinstance(says, str) else says:
            self.assertIn(words, err)
        return err

    def metrics(self, name):
        return [json.loads(line) for line in (self.folder / name).read_text().splitlines()]

    def losses(self, name):
        return [line["loss_hex"] for line in self.metrics(name)]

    def page(self, name):
        """The JSON of a report's page; it ends at the first tag that the file contains."""
        html = (self.folder / name).read_text()
        return json.loads(html.split('<script id="run" type="application/json">')[1].split("<")[0])

    def card(self, page, name):
        """The section of a page with that id or title; None if there is none."""
        return next((card for card in page["cards"] if name in (card.get("id"), card["title"])), None)
