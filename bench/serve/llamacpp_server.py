"""llama.cpp's HTTP server, from the package xllamacpp, until a signal ends it.

Each of 16 slots has its own context, so that attention of one request never reads another's keys.
"""

import argparse
import signal

import xllamacpp

SLOTS, CONTEXT = 16, 512
KEYS = {"fp32": xllamacpp.ggml_type.GGML_TYPE_F32, "bf16": xllamacpp.ggml_type.GGML_TYPE_BF16}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--port", type=int)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--precision", choices=KEYS)
    options = parser.parse_args()
    fields = xllamacpp.CommonParams()
    fields.model.path = options.model
    fields.port = options.port
    fields.n_parallel, fields.n_ctx = SLOTS, SLOTS * CONTEXT
    fields.cpuparams.n_threads = fields.cpuparams_batch.n_threads = options.threads
    fields.cache_type_k = fields.cache_type_v = KEYS[options.precision]
    server = xllamacpp.Server(fields)
    print(server.listening_address, flush=True)
    signal.pause()


if __name__ == "__main__":
    main()
