# What newcomers and CI type. Everything goes through the presets in CMakePresets.json.

.DEFAULT_GOAL := build
.PHONY: bootstrap build demo test check format bench bench-mesh asan tsan clean

bootstrap:
	@tools/bootstrap.sh

build: bootstrap
	@cmake --preset release >/dev/null
	@cmake --build --preset release

# Trains a small language model on a pipeline of two stages and prints what it wrote.
demo: build
	@tools/demo.sh

check: bootstrap
	@python3 tools/check_layers.py
	@python3 tools/size.py
	@python3 tools/check_docs.py
	@tools/format.sh --check

format: bootstrap
	@tools/format.sh

# ctest comes last, so that its closing line ends the output.
test: build check
	@python3 tools/check_docs.py --run
	@ctest --preset release

bench: build
	@tools/fetch_text.sh
	@python3 bench/pipeline/run.py

# DEEPSPEED=folder where it is installed, to have it among the peers.
bench-mesh: build
	@tools/fetch_text.sh
	@python3 bench/mesh/run.py $(if $(DEEPSPEED),--deepspeed $(DEEPSPEED))

asan tsan: bootstrap
	@cmake --preset $@ >/dev/null
	@cmake --build --preset $@
	@ctest --preset $@

clean:
	@rm -rf build
