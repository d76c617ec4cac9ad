"""Overloads a server: clients send twice as many requests as it can answer, and a fifth of them vanish.

Each answer is refused with status 429, or whole and the same as without load. The server's memory stays flat, and all pages
are free at the end. STRATA_LONG_SECONDS is the time of the load, 600 by default.
"""

import collections
import http.client
import json
import os
import pathlib
import random
import socket
import statistics
import threading
import time
import unittest

from model_server import Server, ServerTest

SECONDS = float(os.environ.get("STRATA_LONG_SECONDS", 600))
VANISHING = 0.2
BODIES = 48
CLIENTS = 200  # connections at once, at most


def bodies():
    numbers = random.Random(5)
    words = "In the beginning was the word and the word was with all of them "
    for seed in range(BODIES):
        yield {"prompt": (words * 2)[:numbers.randint(1, 90)], "max_tokens": numbers.randint(1, 36), "seed": seed,
               "temperature": numbers.choice([0, 1]), "logprobs": numbers.choice([None, 2]), "stream": numbers.random() < 0.5}


class Refused(Exception):
    """Status 429 with a time after which the client may come back."""


def connect(address):
    connection = http.client.HTTPConnection(address, timeout=120)
    connection.connect()
    return connection


def read_answer(body, response):
    """The choices of a whole answer: one of a plain answer, one a token of a stream."""
    if response.status == 429 and int(response.getheader("Retry-After")) >= 1:
        response.read()
        raise Refused
    if response.status != 200:
        raise AssertionError(f"status {response.status}: {response.read()[:200]}")
    text = response.read().decode()
    if not body["stream"]:
        return json.loads(text)["choices"]
    events = [event.removeprefix("data: ") for event in text.split("\n\n") if event]
    if events.pop() != "[DONE]":
        raise AssertionError(f"a stream ended early: {text[-200:]}")
    return [json.loads(event)["choices"] for event in events]


def ask(address, body):
    connection = connect(address)
    try:
        connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
        return read_answer(body, connection.getresponse())
    finally:
        connection.close()


def vanish(address, body, numbers):
    """Leaves within the request, after it, or within the answer; half of the clients reset the connection."""
    text = json.dumps(body).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: {len(text)}\r\n\r\n".encode()
    with socket.create_connection(address.split(":"), timeout=120) as connection:
        if numbers.random() < 0.5:  # closing it sends RST
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        message = head + text
        stage = numbers.randrange(3)
        connection.sendall(message[:numbers.randrange(len(message))] if stage == 0 else message)
        if stage == 2:
            connection.recv(numbers.randint(1, 2000))


class Load:
    """Requests at times that do not depend on answers."""

    def __init__(self, address, wanted):
        self.address, self.wanted = address, wanted
        self.outcomes, self.faults = collections.Counter(), []
        self.room = threading.Semaphore(CLIENTS)

    def client(self, index, seed):
        numbers = random.Random(seed)
        body, expected = self.wanted[index]
        try:
            if numbers.random() < VANISHING:
                vanish(self.address, body, numbers)
                outcome = "vanished"
            else:
                outcome = "whole" if ask(self.address, body) == expected else "different"
        except Refused:
            outcome = "refused"
        except Exception as fault:  # any other end is a fault of the server
            outcome = "failed"
            self.faults.append(f"{type(fault).__name__}: {fault}")
        self.outcomes[outcome] += 1
        self.room.release()

    def run(self, rate, seconds, each_second):
        numbers = random.Random(1)
        begin = due = time.monotonic()
        sampled = 0
        while due < begin + seconds:
            due += numbers.expovariate(rate)
            time.sleep(max(0, due - time.monotonic()))
            self.room.acquire()
            threading.Thread(target=self.client, args=(numbers.randrange(len(self.wanted)), numbers.random())).start()
            if time.monotonic() - begin > sampled:
                sampled += 1
                each_second()
        for _ in range(CLIENTS):
            self.room.acquire()
        return time.monotonic() - begin


class Overload(ServerTest):
    def capacity(self, server, wanted, seconds):
        """Answers a second, of eight clients that wait for their answers."""
        counts, end = [0] * 8, time.monotonic() + seconds

        def client(i):
            while time.monotonic() < end:
                ask(server.address, wanted[(i + 8 * counts[i]) % BODIES][0])
                counts[i] += 1
        threads = [threading.Thread(target=client, args=(i,)) for i in range(len(counts))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return sum(counts) / seconds

    def test_an_overloaded_server_answers_or_refuses_and_keeps_its_memory(self):
        self.succeed("train", "recipe.yaml", "--set", "train.checkpoint_folder=long", "--set", "model.context=128",
                     "--set", "mesh.pp=1")
        server = Server(self, "long", "--listen", "127.0.0.1:0", "--cache", "256KiB", "--sequences", "8", "--waiting", "24",
                        "--guesses", "2")
        wanted = [(body, ask(server.address, body)) for body in bodies()]
        rate = 2 * self.capacity(server, wanted, min(10, SECONDS / 10))
        status = pathlib.Path(f"/proc/{server.process.pid}/status")
        resident = []
        load = Load(server.address, wanted)
        seconds = load.run(rate, SECONDS, lambda: resident.append(
            int(status.read_text().split("VmRSS:")[1].split()[0]) / 1024))
        tenth = max(1, len(resident) // 10)
        early, late = (statistics.median(part) for part in (resident[tenth:2 * tenth], resident[-tenth:]))
        sent = sum(load.outcomes.values())
        print(f"{sent} requests in {seconds:.0f} s, {sent / seconds:.0f} a second, {2 * sent / seconds / rate:.2f} times the "
              f"capacity: {dict(load.outcomes)}; resident {early:.1f} MiB early, {late:.1f} MiB late; "
              f"{server.metric('vllm:num_preemptions_total'):.0f} preemptions")
        self.assertEqual((load.faults[:5], load.outcomes["different"]), ([], 0))
        for outcome in ("whole", "refused", "vanished"):
            self.assertGreater(load.outcomes[outcome], 0)
        self.assertLess(late, 1.03 * early + 4)
        deadline = time.time() + 30
        while server.metric("vllm:num_requests_running") > 0 and time.time() < deadline:
            time.sleep(0.05)
        for name in ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc"):
            self.assertEqual(server.metric("vllm:" + name), 0, name)
        self.assertEqual(ask(server.address, wanted[0][0]), wanted[0][1])
        self.assertEqual(server.end()[0::2], (0, ""))


if __name__ == "__main__":
    unittest.main()
