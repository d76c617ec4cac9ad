"""Drives a server of OpenAI's completions with closed-loop clients and measures what they see.

A client is a thread with one connection at a time; it sends its next request when the last one is
answered in full. Only the standard library, in the process of the bench, outside every server.
"""

import http.client
import json
import math
import random
import re
import statistics
import threading
import time
from dataclasses import dataclass, field

ROUTE = "/v1/completions"
HEADERS = {"Content-Type": "application/json"}
FEWEST_WORDS, MOST_WORDS = 12, 180  # about 16 to 256 tokens of SmolLM2


@dataclass
class Answer:
    """One streamed answer. Times are seconds of the clock `time.perf_counter`."""

    prompt: str
    sent: float
    arrivals: list = field(default_factory=list)  # of chunks with text
    texts: list = field(default_factory=list)
    usage: dict = field(default_factory=dict)

    @property
    def text(self):
        return "".join(self.texts)

    @property
    def tokens(self):
        return self.usage.get("completion_tokens", len(self.arrivals))


class ServerError(RuntimeError):
    """The server refused a request or ended its stream with an error."""


def passages(text, count, random_numbers):
    """So many beginnings at random words; the logarithms of their lengths are uniform."""
    words = re.sub(r"(?m)^\S+:\d+ ", "", text).split()
    lengths = [round(math.exp(random_numbers.uniform(math.log(FEWEST_WORDS), math.log(MOST_WORDS))))
               for _ in range(count)]
    begins = [random_numbers.randrange(len(words) - MOST_WORDS) for _ in range(count)]
    return [" ".join(words[begin:begin + length]) for begin, length in zip(begins, lengths)]


def complete(address, body, timeout=600):
    """The status and the body of an answer without a stream."""
    connection = http.client.HTTPConnection(address, timeout=timeout)
    try:
        connection.request("POST", ROUTE, json.dumps(body), HEADERS)
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def read_chunk(line, answer, arrived):
    chunk = json.loads(line)
    if "error" in chunk:
        raise ServerError(f"the stream of {answer.prompt[:40]!r} has an error: {chunk['error']}")
    answer.usage = chunk.get("usage") or answer.usage
    text = "".join(choice.get("text") or "" for choice in chunk.get("choices") or [])
    if text:
        answer.arrivals.append(arrived)
        answer.texts.append(text)


def stream(address, body, timeout=600):
    """Sends a request and reads its events to the end."""
    connection = http.client.HTTPConnection(address, timeout=timeout)
    answer = Answer(body["prompt"], time.perf_counter())
    try:
        connection.request("POST", ROUTE, json.dumps({**body, "stream": True}), HEADERS)
        response = connection.getresponse()
        if response.status != 200:
            raise ServerError(f"status {response.status}: {response.read(500).decode()}")
        for line in response:
            if line.startswith(b"data:") and line[5:].strip() != b"[DONE]":
                read_chunk(line[5:], answer, time.perf_counter())
    finally:
        connection.close()
    if not answer.arrivals:
        raise ServerError(f"the answer to {answer.prompt[:40]!r} has no text")
    return answer


def run_clients(address, prompts, clients, body):
    """All answers, in the order of `prompts`, from so many clients, and the seconds of all."""
    answers, errors = [None] * len(prompts), []
    numbers, lock = iter(range(len(prompts))), threading.Lock()

    def client():
        while not errors:
            with lock:
                number = next(numbers, None)
            if number is None:
                return
            try:
                answers[number] = stream(address, {**body, "prompt": prompts[number]})
            except (ServerError, OSError, ValueError, http.client.HTTPException) as error:
                errors.append(error)

    threads = [threading.Thread(target=client) for _ in range(clients)]
    begin = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise ServerError(f"{clients} clients: {errors[0]}")
    return answers, time.perf_counter() - begin


def percentile(values, share):
    """The smallest value that at least `share` of the values do not exceed."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def measure(address, prompts, clients, body):
    """What the clients saw: seconds, tokens a second, and the texts."""
    answers, seconds = run_clients(address, prompts, clients, body)
    first = [answer.arrivals[0] - answer.sent for answer in answers]
    gaps = [later - earlier for answer in answers
            for earlier, later in zip(answer.arrivals, answer.arrivals[1:])]
    tokens = sum(answer.tokens for answer in answers)
    return {"first_token_seconds": statistics.median(first),
            "first_token_seconds_p99": percentile(first, 0.99),
            "gap_seconds_p50": percentile(gaps, 0.5) if gaps else math.nan,
            "gap_seconds_p99": percentile(gaps, 0.99) if gaps else math.nan,
            "tokens_per_second": tokens / seconds, "seconds": seconds, "tokens": tokens,
            "prompt_tokens": sum(answer.usage.get("prompt_tokens", 0) for answer in answers),
            "chunks": sum(len(answer.arrivals) for answer in answers),
            "ended_early": sum(answer.tokens < body["max_tokens"] for answer in answers),
            "texts": [answer.text for answer in answers]}


def prompts_of_levels(text, seed, levels, requests_per_client, fewest):
    """For each number of clients its own prompts, so that no cache of prefixes helps."""
    random_numbers = random.Random(seed)
    return {clients: passages(text, max(fewest, clients * requests_per_client), random_numbers)
            for clients in levels}
