#!/usr/bin/env bash
# Trains a recipe under torchrun, which starts any program with --no-python. On every node:
#
#   NODES=2 NODE=0 HEAD=node0 deploy/torchrun.sh recipe.yaml [--resume runs/gpt ...]
#
#   NODES      machines, 1 if unset
#   NODE       number of this one, 0 on the head
#   HEAD       name or address of machine 0, which the others reach at PORT
#   PORT       29500 if unset
#   PROCESSES  a machine, 1 if unset: its ranks are threads and hand tensors over without copying
#   STRATA     path of the program
#
# With several nodes STRATA_SECRET, or STRATA_SECRET_FILE (a file of mode 600), is the same on all:
#   export STRATA_SECRET=$(openssl rand -hex 32)
#
# torchrun sets RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT for every process.
set -euo pipefail

[ $# -ge 1 ] || { echo "torchrun.sh: name a recipe" >&2; exit 2; }
recipe=$1
shift
if [ "${NODES:-1}" -gt 1 ] && [ -z "${STRATA_SECRET:-}${STRATA_SECRET_FILE:-}" ]; then
  echo "torchrun.sh: set STRATA_SECRET to the same secret on all nodes: openssl rand -hex 32" >&2
  exit 2
fi

exec torchrun --no-python \
  --nnodes "${NODES:-1}" --node-rank "${NODE:-0}" --nproc-per-node "${PROCESSES:-1}" \
  --master-addr "${HEAD:-127.0.0.1}" --master-port "${PORT:-29500}" \
  "${STRATA:-strata}" train "$recipe" "$@"
