"""Drives the server's routes with OpenAI's own Python client.

Exit code 77, with the reason, where the client is not installed.
"""

import sys
import tempfile
import time
import unittest
import urllib.request

sys.path.insert(0, __file__.rsplit("/", 2)[0] + "/cli")
import prometheus_text  # noqa: E402
from fake_server import FakeServer  # noqa: E402

try:
    import openai
except ImportError:
    openai = None


class Client(unittest.TestCase):
    def serve(self, key="none", **options):
        server = FakeServer(**options)
        self.addCleanup(server.__exit__)
        self.address = server.address
        client = openai.OpenAI(base_url=f"http://{server.address}/v1", api_key=key, max_retries=0)
        self.addCleanup(client.close)
        return client

    def test_lists_models(self):
        client = self.serve()
        self.assertEqual([model.id for model in client.models.list()], ["fake"])
        self.assertEqual(client.models.retrieve("fake").owned_by, "strata")
        with self.assertRaises(openai.NotFoundError) as refused:
            client.models.retrieve("other")
        self.assertEqual(refused.exception.code, "model_not_found")

    def test_completes(self):
        client = self.serve()
        answer = client.completions.create(model="fake", prompt="abc", max_tokens=7, temperature=0, n=2, echo=True, logprobs=2)
        self.assertEqual([choice.text for choice in answer.choices], ["abcabcabca"] * 2)
        self.assertEqual(answer.choices[1].finish_reason, "length")
        scores = answer.choices[0].logprobs
        self.assertEqual(scores.tokens, list("abcabcabca"))
        self.assertEqual(scores.text_offset, list(range(10)))
        self.assertIsNone(scores.token_logprobs[0])
        self.assertTrue(all(score < 0 for score in scores.token_logprobs[1:]))
        self.assertEqual((answer.usage.prompt_tokens, answer.usage.completion_tokens, answer.usage.total_tokens), (3, 14, 17))
        self.assertEqual(answer.usage.prompt_tokens_details.cached_tokens, 1)

    def test_embeds(self):
        client = self.serve()
        answer = client.embeddings.create(model="fake", input=["\x03\x04", "a"])  # in base64, by default
        self.assertEqual([[round(x, 6) for x in item.embedding] for item in answer.data], [[0.6, 0.8], [0.707107, 0.707107]])
        self.assertEqual((answer.usage.prompt_tokens, answer.usage.total_tokens), (3, 3))
        floats = client.embeddings.create(model="fake", input=[3, 4], encoding_format="float")
        self.assertEqual(floats.data[0].embedding, answer.data[0].embedding)

    def test_streams_completions(self):
        client = self.serve()
        chunks = list(client.completions.create(model="fake", prompt="h\u00e9llo ", max_tokens=9, temperature=0, stream=True,
                                                stream_options={"include_usage": True}, stop=["o h"]))
        self.assertEqual("".join(choice.text for chunk in chunks for choice in chunk.choices), "h\u00e9ll")
        self.assertEqual(chunks[-1].choices, [])
        self.assertEqual(chunks[-1].usage.completion_tokens, 8)
        self.assertEqual(chunks[-2].choices[0].finish_reason, "stop")
        self.assertEqual(len({chunk.id for chunk in chunks}), 1)

    def test_chats(self):
        client = self.serve(answer="Hello \u2603\x03")
        messages = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": [{"type": "text", "text": "Hi"}]}]
        answer = client.chat.completions.create(model="fake", messages=messages, temperature=0, logprobs=True, top_logprobs=2,
                                                max_completion_tokens=50)
        self.assertEqual(answer.choices[0].message.content, "Hello \u2603")
        self.assertEqual(answer.choices[0].message.role, "assistant")
        self.assertEqual(answer.choices[0].finish_reason, "stop")
        content = answer.choices[0].logprobs.content
        self.assertEqual(bytes(sum((token.bytes for token in content), [])).decode(), "Hello \u2603")
        self.assertEqual(content[6].token, "bytes:\\xe2")
        self.assertEqual(len(content[0].top_logprobs), 2)

    def test_streams_chats(self):
        client = self.serve(answer="Hello \u2603\x03")
        with client.chat.completions.stream(model="fake", messages=[{"role": "user", "content": "Hi"}], temperature=0) as stream:
            pieces = [event.delta for event in stream if event.type == "content.delta"]
            final = stream.get_final_completion()
        self.assertEqual("".join(pieces), "Hello \u2603")
        self.assertEqual(final.choices[0].message.content, "Hello \u2603")
        self.assertEqual(final.choices[0].finish_reason, "stop")

    def test_raises_the_clients_own_errors(self):
        client = self.serve(requests=1, token_ms=20)
        with self.assertRaises(openai.BadRequestError) as refused:
            client.completions.create(model="fake", prompt="a", top_p=3)
        self.assertEqual((refused.exception.param, refused.exception.code), ("top_p", "invalid_value"))
        with self.assertRaises(openai.BadRequestError) as refused:
            client.chat.completions.create(model="fake", messages=[{"role": "user", "content": "a"}],
                                           tools=[{"type": "function", "function": {"name": "f"}}])
        self.assertEqual(refused.exception.param, "tools")
        with self.assertRaises(openai.RateLimitError) as refused:
            client.completions.create(model="fake", prompt="a", n=2)
        self.assertEqual(refused.exception.response.headers["retry-after"], "2")
        with self.assertRaises(openai.BadRequestError) as refused:
            client.embeddings.create(model="fake", input="a", dimensions=8)
        self.assertEqual(refused.exception.param, "dimensions")

    def test_checks_keys(self):
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            file.write("keys: [{name: a, key: sk-good, requests_per_minute: 2}, {name: b, key: sk-other, models: [x]}]")
            file.flush()
            client = self.serve(key="sk-bad", keys=file.name)
            with self.assertRaises(openai.AuthenticationError) as refused:
                client.models.list()
            self.assertEqual(refused.exception.code, "invalid_api_key")
            with self.assertRaises(openai.PermissionDeniedError):
                client.with_options(api_key="sk-other").completions.create(model="fake", prompt="a")
            good = client.with_options(api_key="sk-good")
            answer = good.completions.with_raw_response.create(model="fake", prompt="a", max_tokens=1)
            self.assertEqual(answer.headers["x-ratelimit-remaining-requests"], "1")
            good.completions.create(model="fake", prompt="a", max_tokens=1)
            with self.assertRaises(openai.RateLimitError):
                good.completions.create(model="fake", prompt="a", max_tokens=1)
            self.assertEqual(urllib.request.urlopen(f"http://{self.address}/health").status, 200)

    def test_ends_requests_of_clients_that_leave(self):
        client = self.serve(token_ms=5)
        stream = client.completions.create(model="fake", prompt="ab", max_tokens=4000, stream=True)
        next(iter(stream))
        stream.close()
        client.completions.create(model="fake", prompt="ab", max_tokens=2, timeout=30)
        deadline = time.monotonic() + 20
        while self.metric("strata_requests_running", model="fake") > 0:
            self.assertLess(time.monotonic(), deadline)
            time.sleep(.05)
        self.assertEqual(self.metric("strata_requests_finished_total", model="fake", finished_reason="abort"), 1)

    def metric(self, name, **labels):
        with urllib.request.urlopen(f"http://{self.address}/metrics") as answer:
            families = prometheus_text.parse(answer.read().decode())
        return families[name][1][name, tuple(sorted(labels.items()))]

    def test_writes_metrics_that_parse(self):
        client = self.serve()
        client.completions.create(model="fake", prompt="abc", max_tokens=5)
        self.assertEqual(self.metric("vllm:request_success_total", engine="0", model_name="fake", finished_reason="length"), 1)
        self.assertEqual(self.metric("strata_generation_tokens_total", model="fake"), 5)

    def test_serves_many_streams_at_once(self):
        client = self.serve(token_ms=1)
        streams = [client.completions.create(model="fake", prompt=f"{i:02d}", max_tokens=20, temperature=0, stream=True)
                   for i in range(30)]
        for i, stream in enumerate(streams):
            self.assertEqual("".join(chunk.choices[0].text for chunk in stream), f"{i:02d}" * 10)


if __name__ == "__main__":
    if openai is None:
        print("skipped: the Python package openai is not installed (.venv/bin/pip install openai)")
        sys.exit(77)
    unittest.main()
