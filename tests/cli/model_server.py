"""A started `strata serve`, and requests to it."""

import concurrent.futures
import http.client
import json
import re
import signal
import urllib.request

from strata_program import ProgramTest

WORDS = "In the beginning"


class Server:
    """A started `strata serve`, with the address that it printed."""

    def __init__(self, test, *arguments, launch=()):
        self.process = test.start(*(["launch", *launch] if launch else []), "serve", *arguments)
        self.lines = []
        self.await_ready()
        self.address = re.search(r"http://([\d.]+:\d+)", "\n".join(self.lines))[1]

    def await_ready(self):
        for line in self.process.stdout:
            self.lines.append(line.strip())
            if line.startswith("ready"):
                return
        raise AssertionError(self.process.stderr.read())

    def get(self, path, **headers):
        request = urllib.request.Request(f"http://{self.address}{path}", headers=headers)
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.read().decode()

    def post(self, path, body, **headers):
        request = urllib.request.Request(f"http://{self.address}{path}", json.dumps(body).encode(),
                                         {"Content-Type": "application/json", **headers})
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)

    def complete(self, **fields):
        return self.post("/v1/completions", {"prompt": WORDS, "max_tokens": 12, "temperature": 0, **fields})

    def text(self, **fields):
        return self.complete(**fields)["choices"][0]["text"]

    def choices(self, requests, threads):
        """Those of each request, of which so many are under way."""
        with concurrent.futures.ThreadPoolExecutor(threads) as pool:
            return [answer["choices"] for answer in pool.map(lambda fields: self.complete(**fields), requests)]

    def stream(self, **fields):
        """The chunks of a completion, as their events arrive."""
        connection = http.client.HTTPConnection(self.address, timeout=60)
        connection.request("POST", "/v1/completions", json.dumps(
            {"prompt": WORDS, "max_tokens": 12, "temperature": 0, "stream": True, **fields}))
        return connection, connection.getresponse()

    def metric(self, name):
        return sum(float(line.rsplit(" ", 1)[1]) for line in self.get("/metrics").splitlines()
                   if line.startswith(name + "{") or line.startswith(name + " "))

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        out, err = self.process.communicate(timeout=60)
        return self.process.returncode, out, err


def events(response):
    return [line[6:] for line in response.read().decode().splitlines() if line.startswith("data: ")]


class ServerTest(ProgramTest):
    """A test in a folder that holds a checkpoint, c, of recipe.yaml."""

    def setUp(self):
        super().setUp()
        self.succeed("train", "recipe.yaml", "--set", "train.checkpoint_folder=c")

    def serve(self, *arguments, **options):
        return Server(self, "c", "--listen", "127.0.0.1:0", "--name", "tiny", *arguments, **options)
