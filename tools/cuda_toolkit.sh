#!/usr/bin/env bash
# Prints the folder of a CUDA toolkit that has bin/nvcc: the machine's, or wheels in build/cuda-toolkit.
#
#   tools/cuda_toolkit.sh               installs the wheels (tools/cuda_toolkit.txt) if there is no nvcc
#   tools/cuda_toolkit.sh --no-install  installs nothing
#   tools/cuda_toolkit.sh --wheels      the wheels, even where the machine has an nvcc
#
# Ends with 77, and says why on standard error, where there is none.
set -euo pipefail
cd "$(dirname "$0")/.."
mode=${1:-}
wheels=$PWD/build/cuda-toolkit/nvidia/cu13

if [ "$mode" != --wheels ]; then
  for nvcc in ${CUDA_HOME:+"$CUDA_HOME/bin/nvcc"} "$(command -v nvcc || true)" /usr/local/cuda/bin/nvcc; do
    [ -x "$nvcc" ] || continue
    # nvcc itself knows where it lies; the one of the PATH may be a script that calls it.
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
