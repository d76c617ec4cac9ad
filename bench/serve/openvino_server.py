"""Puts `/v1/completions` before openvino-genai's continuous batching, which has no HTTP server.

One thread steps the pipeline; each request's thread sends its tokens as they come. The fields
prompt, max_tokens and stream are read; generation is greedy and continues after an EOS token.
"""

import argparse
import http.server
import itertools
import json
import os
import queue
import threading
import traceback

import openvino_genai

SEQUENCES, PASS_TOKENS, CACHE_GIB = 16, 512, 1


class Pipeline:
    def __init__(self, model, threads):
        scheduler = openvino_genai.SchedulerConfig()
        scheduler.max_num_seqs, scheduler.max_num_batched_tokens = SEQUENCES, PASS_TOKENS
        scheduler.cache_size = CACHE_GIB
        scheduler.enable_prefix_caching = True
        self.pipeline = openvino_genai.ContinuousBatchingPipeline(
            model, scheduler, "CPU",
            {"INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": "f32",
             "KV_CACHE_PRECISION": "f32"})
        self.tokenizer = self.pipeline.get_tokenizer()
        self.numbers, self.waiting, self.running = itertools.count(), queue.Queue(), []
        threading.Thread(target=self.step_forever, daemon=True).start()

    def submit(self, prompt, tokens):
        """The queue of the answer's tokens; None follows the last."""
        config = openvino_genai.GenerationConfig()
        config.max_new_tokens, config.ignore_eos, config.do_sample = tokens, True, False
        config.apply_chat_template = False
        answer = queue.Queue()
        self.waiting.put((prompt, config, tokens, answer))
        return answer

    def start_waiting(self):
        while not (self.running and self.waiting.empty()):
            prompt, config, tokens, answer = self.waiting.get()
            handle = self.pipeline.add_request(next(self.numbers), prompt, config)
            self.running.append([handle, tokens, answer])

    def send_tokens(self, request):
        handle, _, answer = request
        while handle.can_read():
            for output in handle.read().values():
                for token in output.generated_ids:
                    answer.put(token)
                    request[1] -= 1
        if request[1] <= 0:
            answer.put(None)

    def step_forever(self):
        try:
            while True:
                self.start_waiting()
                self.pipeline.step()
                for request in self.running:
                    self.send_tokens(request)
                self.running = [request for request in self.running if request[1] > 0]
        except Exception:
            traceback.print_exc()
            os._exit(1)


class Handler(http.server.BaseHTTPRequestHandler):
    pipeline = None

    def log_message(self, *_):
        pass

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        tokens = self.pipeline.submit(body["prompt"], body["max_tokens"])
        pieces = (self.pipeline.tokenizer.decode([token]) for token in iter(tokens.get, None))
        self.send_response(200)
        self.send_header("Content-Type",
                         "text/event-stream" if body.get("stream") else "application/json")
        self.end_headers()
        if body.get("stream"):
            for piece in pieces:
                chunk = {"choices": [{"index": 0, "text": piece}]}
                self.wfile.write(b"data: " + json.dumps(chunk).encode() + b"\n\n")
            self.wfile.write(b"data: [DONE]\n\n")
        else:
            answer = {"choices": [{"index": 0, "text": "".join(pieces)}]}
            self.wfile.write(json.dumps(answer).encode())


class Listener(http.server.ThreadingHTTPServer):
    request_queue_size = 64


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--port", type=int)
    parser.add_argument("--threads", type=int)
    options = parser.parse_args()
    Handler.pipeline = Pipeline(options.model, options.threads)
    Listener(("127.0.0.1", options.port), Handler).serve_forever()


if __name__ == "__main__":
    main()
