#!/usr/bin/env bash
# instruction_sets.sh ATEN ONEDNN FOLDER...: runs quick tests as on a processor with fewer
# instructions.
#
# ATEN (default, avx2) limits libtorch's kernels, ONEDNN (SSE41, AVX2, ...) the matrix products of
# oneDNN. FOLDERs hold the test programs. Numbers may differ between processors, results of tests
# may not. The long matrices of `train` and `run` are omitted: they compare a run with itself.
set -euo pipefail
export ATEN_CPU_CAPABILITY=$1 ONEDNN_MAX_CPU_ISA=$2
shift 2
for program in "$@"; do
  filter='*'
  case $program in
    *train_test) filter='BitEqualityReference*:LossScaling*:Dropout*:Step*' ;;
    *run_test) filter='RecipeEffects*:Verify.Holds*:OwnTask*' ;;
  esac
  "$program" --gtest_brief=1 --gtest_filter="$filter"
done
