"""Tests that the load generator of bench/serve sees what a server sends, and when."""

import http.server
import json
import sys
import threading
import time
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench/serve"))
import load  # noqa: E402

FIRST, LATER = 0.05, 0.02  # seconds before the first token, and before every other


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers "a b c ..." at a known pace, and keeps what arrived."""

    def log_message(self, *_):
        pass

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with self.server.lock:
            self.server.prompts.append(body["prompt"])
            self.server.running += 1
            self.server.most_running = max(self.server.most_running, self.server.running)
        self.send_response(400 if body["prompt"] == "refused" else 200)
        self.end_headers()
        self.server.send(self, body)
        with self.server.lock:
            self.server.running -= 1


def send_events(handler, body):
    tokens = min(body["max_tokens"], handler.server.most_tokens)
    for number in range(tokens):
        time.sleep(LATER if number else FIRST)
        handler.server.sent.append(time.perf_counter())
        write_event(handler, {"choices": [{"text": f" {number}"}]})
    write_event(handler, {"choices": [{"text": "", "finish_reason": "length"}]})
    if handler.server.error:
        write_event(handler, {"error": {"message": "broken"}})
    write_event(handler, {"choices": [], "usage": {"completion_tokens": tokens, "prompt_tokens": 5}})
    handler.wfile.write(b"data: [DONE]\n\n")


def write_event(handler, event):
    handler.wfile.write(b"data: " + json.dumps(event).encode() + b"\n\n")


class LoadGenerator(unittest.TestCase):
    def serve(self, most_tokens=100, error=False):
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.lock, server.prompts, server.sent = threading.Lock(), [], []
        server.running = server.most_running = 0
        server.most_tokens, server.error, server.send = most_tokens, error, send_events
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        return server, f"127.0.0.1:{server.server_port}"

    def test_times_every_token_when_it_is_sent(self):
        server, address = self.serve()
        answer = load.stream(address, {"prompt": "p", "max_tokens": 5})
        self.assertEqual((answer.text, answer.tokens, len(answer.arrivals)), (" 0 1 2 3 4", 5, 5))
        self.assertGreaterEqual(answer.arrivals[0] - answer.sent, FIRST)
        # A token is seen before the next one is sent: the reader does not wait for the end.
        self.assertTrue(all(sent <= seen for sent, seen in zip(server.sent, answer.arrivals)))
        self.assertLess(answer.arrivals[0], server.sent[-1])

    def test_measures_rate_and_gaps_of_all_clients(self):
        server, address = self.serve()
        prompts = [f"prompt {number}" for number in range(6)]
        result = load.measure(address, prompts, 3, {"max_tokens": 4})
        self.assertEqual((result["tokens"], result["chunks"], result["prompt_tokens"]), (24, 24, 30))
        self.assertEqual(result["texts"], [" 0 1 2 3"] * 6)
        self.assertEqual((server.most_running, sorted(server.prompts)), (3, prompts))
        self.assertEqual(result["ended_early"], 0)
        self.assertGreaterEqual(result["first_token_seconds"], FIRST)
        self.assertGreaterEqual(result["gap_seconds_p99"], result["gap_seconds_p50"])
        # Two answers of each client follow each other.
        self.assertGreaterEqual(result["seconds"], 2 * (FIRST + 3 * LATER))
        self.assertAlmostEqual(result["tokens_per_second"] * result["seconds"], 24)

    def test_counts_answers_that_end_early(self):
        _, address = self.serve(most_tokens=2)
        result = load.measure(address, ["a", "b"], 1, {"max_tokens": 3})
        self.assertEqual((result["ended_early"], result["tokens"]), (2, 4))

    def test_an_error_or_a_refusal_is_no_answer(self):
        _, address = self.serve(error=True)
        with self.assertRaisesRegex(load.ServerError, "broken"):
            load.measure(address, ["a", "b"], 2, {"max_tokens": 1})
        with self.assertRaisesRegex(load.ServerError, "400"):
            load.stream(address, {"prompt": "refused", "max_tokens": 1})
        self.assertEqual(load.complete(address, {"prompt": "refused", "max_tokens": 0})[0], 400)

    def test_percentile_is_a_value_that_occurred(self):
        values = list(range(100, 0, -1))
        self.assertEqual([load.percentile(values, share) for share in (0.5, 0.99, 1)], [50, 99, 100])
        self.assertEqual(load.percentile([7], 0.99), 7)

    def test_levels_have_prompts_of_their_own_and_a_seed_repeats_them(self):
        text = "".join(f"Ge1:{n} " + " ".join(f"w{n}x{m}" for m in range(10)) + "\n" for n in range(99))
        levels = load.prompts_of_levels(text, 3, [1, 3, 4], 2, 6)
        self.assertEqual([len(levels[clients]) for clients in (1, 3, 4)], [6, 6, 8])
        every = [prompt for prompts in levels.values() for prompt in prompts]
        self.assertEqual(len(set(every)), 20)
        lengths = [len(prompt.split()) for prompt in every]
        self.assertTrue(load.FEWEST_WORDS <= min(lengths) < max(lengths) <= load.MOST_WORDS)
        self.assertNotIn("Ge1", "".join(every))
        self.assertEqual(levels, load.prompts_of_levels(text, 3, [1, 3, 4], 2, 6))
        self.assertNotEqual(levels, load.prompts_of_levels(text, 4, [1, 3, 4], 2, 6))


if __name__ == "__main__":
    unittest.main()
