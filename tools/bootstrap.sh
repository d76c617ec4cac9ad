#!/usr/bin/env bash
# Installs what Strata needs on Debian 12: system packages, then the pinned PyTorch in .venv.
# Idempotent: a second run installs nothing and takes a second. Works as root or with sudo.
#
# bootstrap.sh text   what a program with the task text alone needs, and `make demo` with it
# bootstrap.sh        what the program with every task needs
# bootstrap.sh test   also what the tests, the checkers and the sanitizers need
set -euo pipefail
cd "$(dirname "$0")/.."
for_what=${1:-all}
case $for_what in text | all | test) ;; *) echo "bootstrap: text, test or nothing, not '$for_what'" >&2; exit 2 ;; esac

TORCH_VERSION=2.13.0
TRANSFORMERS_VERSION=5.23.0
MLPERF_LOGGING_VERSION=4.1.68
NANOBIND_VERSION=3.1.0
server_clients=("openai==3.57.0" "tritonclient[http,grpc]==2.73.0" "jsonschema==4.26.0" "llguidance==1.9.1"
                "gguf==0.19.0" "accelerate==1.15.0")
all_installed='
import importlib.metadata, sys
for requirement in sys.argv[1:]:
    name, version = requirement.split("==")
    if importlib.metadata.version(name.partition("[")[0]) != version: sys.exit(1)
'

# package : why
packages=(
  "cmake:build description"
  "ninja-build:build runner"
  "ccache:compiles an unchanged source once"
  "clang-19:compiler (twice as fast as g++ on libtorch's headers)"
  "lld-19:linker"
  "libxxhash-dev:checksums of token files and checkpoints"
  "pkg-config:finds the libraries below"
  "libyaml-cpp-dev:recipes"
  "libssl-dev:keyed hashes, which prove that processes belong to one run"
  "libucx-dev:messages over InfiniBand and RoCE (mesh.transport: ucx)"
  "liburing-dev:reads and writes of the disk tier in the background"
  "nlohmann-json3-dev:metrics, traces, checkpoint manifests"
  "libcli11-dev:command line"
  "libhwy-dev:SIMD in host kernels"
  "libdnnl2:matrix products in fp32 on processors that are not Intel's"
  "libtcmalloc-minimal4:memory of tensors without holes: processes stay a quarter smaller"
  "libpcre2-dev:regular expressions that cut text into words for a tokenizer"
  "libutf8proc-dev:Unicode normal forms for a tokenizer"
  "libpng-dev:images that exported models learn from"
  "libjpeg62-turbo-dev:the same, as JPEG"
  "bible-kjv:the King James text that the demo trains on"
  "python3-venv:the virtual environment that holds PyTorch"
  "python3-dev:headers for the Python package"
  "git:version in the binary, file lists of the checkers"
)
recommender_packages=(
  "zlib1g-dev:logs of samples that gzip has packed"
  "librocksdb-dev:rows of embeddings that memory has no room for"
  "libgrpc++-dev:trainers and servers of embedding rows, and clients of KServe, talk by gRPC"
  "libprotobuf-dev:the messages of these services, which libgrpc++-dev does not bring"
  "protobuf-compiler-grpc:makes the sources of these services"
  "libboost1.81-dev:HTTP of models, metrics and health (Beast, headers only)"
)
test_packages=(
  "libgtest-dev:tests"
  "clang-format-19:make format and make check"
  "libclang-rt-19-dev:sanitizer runtimes of the asan and tsan presets"
  "llvm-19:names in what sanitizers report, which their suppressions match"
)
if [ "$for_what" != text ]; then packages+=("${recommender_packages[@]}"); fi
if [ "$for_what" = test ]; then packages+=("${test_packages[@]}"); fi

missing=()
for entry in "${packages[@]}"; do
  name=${entry%%:*}
  if [ "$(dpkg-query -W -f='${db:Status-Status}' "$name" 2>/dev/null || true)" != installed ]; then
    printf 'bootstrap: installing %-22s %s\n' "$name" "${entry#*:}"
    missing+=("$name")
  fi
done
if [ ${#missing[@]} -gt 0 ]; then
  as_root=()
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || { echo "bootstrap: run as root or install sudo" >&2; exit 3; }
    as_root=(sudo)
  fi
  "${as_root[@]}" apt-get update -qq
  DEBIAN_FRONTEND=noninteractive "${as_root[@]}" apt-get install -y -qq --no-install-recommends \
    "${missing[@]}" >/dev/null
fi

# STRATA_TORCH names another libtorch (2.11 or later, CPU or CUDA); then no wheel is installed.
if [ -z "${STRATA_TORCH:-}" ]; then
  python=$(command -v python3.11 || command -v python3)
  if [ ! -x .venv/bin/python ]; then
    echo "bootstrap: creating .venv"
    "$python" -m venv .venv
  fi
  installed=$(.venv/bin/python -c 'import importlib.metadata as m; print(m.version("torch").split("+")[0])' 2>/dev/null || true)
  # --no-compile: compiles only imported modules to byte code, not all of PyTorch.
  if [ "$installed" != "$TORCH_VERSION" ]; then
    echo "bootstrap: installing torch==$TORCH_VERSION in .venv (libtorch, and the oracle of the tests)"
    .venv/bin/python -m pip install --quiet --no-compile --disable-pip-version-check "torch==$TORCH_VERSION" numpy
  fi
  if [ "$for_what" = test ] && ! .venv/bin/python -c "$all_installed" "nanobind==$NANOBIND_VERSION" 2>/dev/null; then
    echo "bootstrap: installing nanobind==$NANOBIND_VERSION in .venv (the Python package and its tests)"
    .venv/bin/python -m pip install --quiet --no-compile --disable-pip-version-check "nanobind==$NANOBIND_VERSION" ||
      echo "bootstrap: it is not installed; the Python package is not built, and its tests are skipped"
  fi
  # The oracle of tests/parity; without it they are skipped.
  if [ "$for_what" = test ] && ! .venv/bin/python -c 'import importlib.metadata as m, sys; sys.exit(m.version("transformers") != "'$TRANSFORMERS_VERSION'")' 2>/dev/null; then
    echo "bootstrap: installing transformers==$TRANSFORMERS_VERSION in .venv (oracle of the tests)"
    .venv/bin/python -m pip install --quiet --no-compile --disable-pip-version-check \
      "transformers==$TRANSFORMERS_VERSION" "torch==$TORCH_VERSION"
  fi
  # The checker of logs of runs, without what its other tools need; tests with it are skipped without it.
  if [ "$for_what" = test ] && ! .venv/bin/python -c "$all_installed" "mlperf-logging==$MLPERF_LOGGING_VERSION" 2>/dev/null; then
    echo "bootstrap: installing mlperf-logging==$MLPERF_LOGGING_VERSION in .venv (checks logs of runs)"
    .venv/bin/python -m pip install --quiet --no-compile --no-deps --disable-pip-version-check "mlperf-logging==$MLPERF_LOGGING_VERSION" ||
      echo "bootstrap: it is not installed; tests with it are skipped"
  fi
  # Clients and oracles of the server's tests; tests whose package is missing are skipped.
  if [ "$for_what" = test ] && ! .venv/bin/python -c "$all_installed" "${server_clients[@]}" 2>/dev/null; then
    echo "bootstrap: installing clients of the server in .venv: ${server_clients[*]}"
    .venv/bin/python -m pip install --quiet --no-compile --disable-pip-version-check \
      "${server_clients[@]}" "torch==$TORCH_VERSION" ||
      echo "bootstrap: they are not installed; tests with them are skipped"
  fi
fi
