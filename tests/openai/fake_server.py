"""Starts openai_fake_server, whose answers are computed from the tokens of their requests (strata/openai)."""

import os
import subprocess


class FakeServer:
    """A running server, as a context manager; `address` is its HOST:PORT."""

    def __init__(self, **options):
        arguments = [f"{name}={value}" for name, value in options.items()]
        self.process = subprocess.Popen([os.environ["STRATA_FAKE_SERVER"], *arguments], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)
        self.address = self.process.stdout.readline().strip()
        if not self.address:
            raise RuntimeError("the server printed no address")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        code = self.process.wait(timeout=60)
        self.process.stdout.close()
        if code != 0:
            raise RuntimeError(f"the server ended with {code}")
