#!/usr/bin/env bash
# Compiles every CUDA source and links it with a finished CPU build; runs nothing (docs/cuda.md).
#
#   tools/cuda_compile.sh [CPU_BUILD]      default: build/release
#
# Exits with 77, and prints the reason, if there is neither an nvcc nor a way to install one.
set -euo pipefail
cd "$(dirname "$0")/.."
cpu_build=$(realpath "${1:-build/release}")
toolkit=$(tools/cuda_toolkit.sh) || exit 77
cmake --preset cuda-compile -D STRATA_CUDA_TOOLKIT="$toolkit" -D STRATA_CPU_BUILD="$cpu_build" >build/cuda-compile.log 2>&1 ||
  { cat build/cuda-compile.log >&2; exit 1; }
grep 'is left out' build/cuda-compile.log || true
cmake --build --preset cuda-compile
