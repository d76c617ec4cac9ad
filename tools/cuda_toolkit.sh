#!/usr/bin/env bash
# Prints the folder of a CUDA toolkit with bin/nvcc: the machine's, or wheels in build/cuda-toolkit.
#
#   tools/cuda_toolkit.sh               installs wheels (tools/cuda_toolkit.txt) without an nvcc
#   tools/cuda_toolkit.sh --no-install  installs nothing
#   tools/cuda_toolkit.sh --wheels      uses the wheels even if the machine has an nvcc
#
# Exits with 77, and prints the reason on standard error, if there is none.
set -euo pipefail
cd "$(dirname "$0")/.."
mode=${1:-}
wheels=$PWD/build/cuda-toolkit/nvidia/cu13

if [ "$mode" != --wheels ]; then
  for nvcc in ${CUDA_HOME:+"$CUDA_HOME/bin/nvcc"} "$(command -v nvcc || true)" /usr/local/cuda/bin/nvcc; do
    [ -x "$nvcc" ] || continue
    # nvcc itself knows its folder; the one in the PATH may be a script that calls it.
    top=$("$nvcc" --dryrun -x cu -c /dev/null 2>&1 | sed -n 's/^#\$ TOP=//p' || true)
    [ -x "$top/bin/nvcc" ] && { realpath "$top"; exit; }
  done
fi
if [ ! -x "$wheels/bin/nvcc" ] && [ "$mode" != --no-install ]; then
  python=.venv/bin/python
  [ -x "$python" ] || python=python3
  "$python" -m pip install --quiet --no-compile --disable-pip-version-check --no-deps --upgrade \
    --target build/cuda-toolkit -r tools/cuda_toolkit.txt >&2 ||
    { echo "cuda_toolkit: no nvcc on this machine, and the wheels of one cannot be installed" >&2; exit 77; }
  ln -sfn lib "$wheels/lib64"  # where nvcc looks for them
fi
[ -x "$wheels/bin/nvcc" ] ||
  { echo "cuda_toolkit: no nvcc on this machine; tools/cuda_toolkit.sh installs one in build/" >&2; exit 77; }
echo "$wheels"
