#!/usr/bin/env bash
# Builds Strata on a machine with a GPU, PyTorch and nvcc but no network, and runs what needs the
# GPU.
#
#   tools/gpu_run.sh --collect        elsewhere, once: gets packages (.gpu/debs) and .gpu/data
#   tools/gpu_run.sh --pack           elsewhere, after a build in build/gpu: packs programs and text
#   tools/gpu_run.sh                  configures, builds with all cores, runs ctest -L cuda
#   tools/gpu_run.sh --build          only builds
#   tools/gpu_run.sh --facts          bench/gpu/gpu_facts (assumptions of the backend), doctor
#   tools/gpu_run.sh --bench [ARG...] bench/gpu/run.py against that machine's PyTorch
#   tools/gpu_run.sh --curves         bench/gpu/curves.py: losses compared with PyTorch's
#   tools/gpu_run.sh LABEL...         also runs tests with other labels, e.g. cuda cpu
#
# .gpu is copied with the checkout (git ignores it). GPU_DEADLINE: seconds after which a call ends,
# to respect a limit of ten minutes per command; an interrupted build resumes. GPU_TARGETS: what to
# build (cuda_tests: everything that needs the GPU). GPU_PACKED=1: builds nothing, needs no packages
# and uses the packed programs, which need a glibc and a C++ library as new as those of their build,
# and the same release of PyTorch. Logs: $OUT, or build/gpu-out.
set -euo pipefail
cd "$(dirname "$0")/.."

# The packages of bootstrap.sh without compilers, and what those need in addition to a bare system.
packages=(
  libyaml-cpp-dev libyaml-cpp0.7 nlohmann-json3-dev libcli11-dev libxxhash-dev libxxhash0 libhwy-dev libhwy1
  libpng-dev libpng16-16 libjpeg62-turbo-dev libjpeg62-turbo libpcre2-dev libpcre2-8-0 libpcre2-16-0 libpcre2-32-0 libpcre2-posix3 libutf8proc-dev libutf8proc2
  libgtest-dev googletest pkgconf pkgconf-bin libpkgconf3 libssl-dev libssl3 liburing-dev liburing2
  librocksdb-dev librocksdb7.8 libsnappy1v5 libsnappy-dev liblz4-1 liblz4-dev libzstd1 libzstd-dev
  libbz2-1.0 libbz2-dev zlib1g zlib1g-dev libgflags2.2 libgflags-dev
  libgrpc++-dev libgrpc++1.51 libgrpc-dev libgrpc29 libabsl-dev libabsl20220623 libc-ares2 libc-ares-dev
  libre2-9 libre2-dev libprotobuf-dev libprotobuf32 libprotobuf-lite32 libprotoc32 protobuf-compiler
  protobuf-compiler-grpc libboost1.81-dev ninja-build libtcmalloc-minimal4
)

began=$SECONDS
out=${OUT:-build/gpu-out}
deadline=${GPU_DEADLINE:-560}
say() { printf 'gpu_run: %4d s  %s\n' $((SECONDS - began)) "$*"; }
left() { echo $((deadline - (SECONDS - began))); }

if [ "${1:-}" = --collect ]; then
  tools/fetch_text.sh >/dev/null && mkdir -p .gpu/debs .gpu/data && cp data/kjv.txt .gpu/data/
  cd .gpu/debs && apt-get download "${packages[@]}"
  exit
fi

# Programs of build/gpu without debug information, and the libraries that they load, except PyTorch's,
# CUDA's and those of every system.
if [ "${1:-}" = --pack ]; then
  stripped=$(mktemp -d)
  trap 'rm -r "$stripped"' EXIT
  mkdir -p "$stripped/lib" .gpu/data && cp data/kjv.txt .gpu/data/
  cd build/gpu
  programs=(strata bench/gpu/gpu_facts tests/parity/parity_training folders/*/*_cuda_test)
  for program in "${programs[@]}"; do
    mkdir -p "$stripped/$(dirname "$program")"
    strip -o "$stripped/$program" "$program"
  done
  ldd "${programs[@]}" | grep -oE '/(usr/)?lib/x86_64-linux-gnu/[^ ]+' | sort -u |
    grep -vE '/(libc|libm|libdl|libpthread|librt|libutil|libresolv|libgcc_s|libstdc\+\+|libgomp)\.so' |
    xargs cp -L -t "$stripped/lib"
  tar -C "$stripped" -cf - "${programs[@]}" lib | xz -T2 >../../.gpu/programs.tar.xz
  ls -l ../../.gpu/programs.tar.xz
  exit
fi

mkdir -p "$out" data
[ -e data/kjv.txt ] || cp .gpu/data/kjv.txt data/ 2>/dev/null || say "no data/kjv.txt: the bench needs it"

# The packages are in their own folder; libraries of Debian 12 run on any newer glibc.
prefix=${TMPDIR:-/var/tmp}/strata-prefix
if [ -n "${GPU_PACKED:-}" ]; then
  mkdir -p build/gpu
  [ build/gpu/strata -nt .gpu/programs.tar.xz ] || tar -C build/gpu -xmJf .gpu/programs.tar.xz
  LD_LIBRARY_PATH=$PWD/build/gpu/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
elif [ ! -e "$prefix/done" ]; then
  mkdir -p "$prefix"
  for deb in .gpu/debs/*.deb; do dpkg -x "$deb" "$prefix"; done
  touch "$prefix/done"
fi
libraries=$prefix/usr/lib/x86_64-linux-gnu
# Only these packages: with their folder as the root, others would be searched in the wrong place.
export PKG_CONFIG_LIBDIR=$libraries/pkgconfig:$prefix/usr/share/pkgconfig PKG_CONFIG_SYSROOT_DIR=$prefix
# Where Debian keeps headers of one architecture; no package's own files name it.
export C_INCLUDE_PATH=$prefix/usr/include/x86_64-linux-gnu CPLUS_INCLUDE_PATH=$prefix/usr/include/x86_64-linux-gnu
export LD_LIBRARY_PATH=$libraries:$prefix/lib/x86_64-linux-gnu${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
# Uses the machine's tools first, if it has them: only protoc and its plugin must be the packages'.
export PATH=$PATH:$prefix/usr/bin
command -v ninja >/dev/null && command -v cmake >/dev/null || say "no cmake or ninja: those of the packages are tried"

# Without importing PyTorch: the first import on a fresh machine takes many seconds.
torch=$(python3 -c 'import importlib.util as u; print(u.find_spec("torch").submodule_search_locations[0])')
version=$(sed -n "s/^__version__ = '\(.*\)'/\1/p" "$torch/version.py")
toolkit=$(tools/cuda_toolkit.sh --no-install)
export LD_LIBRARY_PATH
for folder in "$torch/lib" "$torch"/../nvidia/*/lib; do LD_LIBRARY_PATH+=:$folder; done  # for packed programs
say "torch $version at $torch; $("$toolkit/bin/nvcc" --version | tail -1); $(g++ --version | head -1)"
nvidia-smi --query-gpu=name,driver_version,clocks.max.sm --format=csv,noheader || say "no GPU"

build() {
  [ -z "${GPU_PACKED:-}" ] || return 0
  tools/keep_times.py build/gpu-times.json CMakeLists.txt cmake strata tests bench examples
  # The presets name clang-19, which is not installed there.
  [ -e build/gpu/build.ninja ] ||
    cmake -S . -B build/gpu -G Ninja -D CMAKE_BUILD_TYPE=Release -D STRATA_UNITY=ON -D STRATA_CUDA=ON \
      -D CMAKE_C_COMPILER=gcc -D CMAKE_CXX_COMPILER=g++ -D STRATA_TORCH="$torch" \
      -D STRATA_CUDA_TOOLKIT="$toolkit" -D CMAKE_PREFIX_PATH="$prefix/usr" -D OPENSSL_ROOT_DIR="$prefix/usr" \
      -D STRATA_PROTOC="$prefix/usr/bin/protoc" -D STRATA_GRPC_PLUGIN="$prefix/usr/bin/grpc_cpp_plugin" \
      -D Python3_EXECUTABLE="$(command -v python3)" \
      -D CMAKE_BUILD_RPATH="$libraries;$torch/lib" -D CMAKE_POLICY_VERSION_MINIMUM=3.5 \
      >"$out/configure.log" 2>&1 || { rm -f build/gpu/build.ninja; tail -30 "$out/configure.log"; exit 1; }
  say configured
  # Reports all failures at once, because the machine is available for minutes only.
  # shellcheck disable=SC2086  # several targets
  timeout --signal=INT "$(left)" cmake --build build/gpu -j "$(nproc)" --target ${GPU_TARGETS:-$1} -- -k 0 \
    >"$out/build.log" 2>&1 ||
    { grep -nE -A12 'error:|Error |FAILED|undefined' "$out/build.log" | head -120; tail -2 "$out/build.log"; exit 1; }
  say built
}

# What ctest -L cuda runs, six at a time, without a configured build. A line for each result; logs of
# failures in $out. The programs of folders come first and run alone, as in ctest.
packed_tests() {
  export STRATA_PROGRAM=$PWD/build/gpu/strata STRATA_REAL_GPU=1 PARITY_TRAINING=$PWD/build/gpu/tests/parity/parity_training
  local limit failed=0
  limit=$(left)
  run_one() {
    local name=$1 began=$SECONDS rc=0
    timeout "$2" "${@:3}" >"$out/$name.log" 2>&1 || rc=$?
    printf 'gpu_run: %-60s rc %3d  %4d s\n' "$name" $rc $((SECONDS - began))
    case $rc in 0 | 77) return 0 ;; esac  # 77: skipped
    tail -n 40 "$out/$name.log" | cut -c 1-400
    return 1
  }
  export -f run_one
  export out limit
  for program in build/gpu/folders/*/*_cuda_test; do
    run_one "$(basename "$program")" "$limit" "$program" --gtest_brief=1 || failed=1
  done
  {
    grep -oE 'def test_[a-z0-9_]+' tests/emulated_gpu/emulated_gpu_test.py | cut -c 5- |
      sed 's|.*|& python3 tests/emulated_gpu/emulated_gpu_test.py EmulatedGpu.&|'
    echo "parity_cuda python3 tests/parity/cuda_test.py"
  } | xargs -P 6 -I LINE bash -c 'set -- LINE; run_one "$1" "$limit" "${@:2}"' || failed=1
  return $failed
}

case ${1:-} in
  --build) build "cuda_tests gpu_facts" ;;
  --facts)
    build "gpu_facts strata"
    timeout "$(left)" build/gpu/bench/gpu/gpu_facts | tee "$out/gpu_facts.log" || say "gpu_facts ended with $?"
    timeout "$(left)" build/gpu/strata doctor | tee -a "$out/gpu_facts.log"
    ;;
  --bench)
    build strata
    timeout "$(left)" python3 bench/gpu/run.py --out "$out/bench.json" "${@:2}" | tee "$out/bench.log"
    ;;
  --curves)
    build parity_training
    timeout "$(left)" python3 bench/gpu/curves.py --training build/gpu/tests/parity/parity_training --out "$out" \
      "${@:2}" | tee "$out/curves.log"
    ;;
  "")
    if [ -n "${GPU_PACKED:-}" ]; then packed_tests && exit; exit 1; fi
    ;;&
  *)
    if [ $# -le 1 ] && [ "${1:-cuda}" = cuda ]; then build cuda_tests; else build all; fi
    labels=$(IFS='|'; echo "${*:-cuda}")
    rc=0
    timeout --signal=INT "$(left)" ctest --test-dir build/gpu -j 6 -L "^($labels)\$" --no-tests=error \
      --output-on-failure -O "$out/ctest.log" || rc=$?
    say "tests ended with $rc"
    exit $rc
    ;;
esac
