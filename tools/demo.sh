#!/usr/bin/env bash
# Trains a small language model on the King James text, on a pipeline of two stages, and prints what
# it has learned. `make demo` runs this after the build.
set -euo pipefail
cd "$(dirname "$0")/.."

strata=build/release/strata
run=runs/demo

say() { printf '\n== %s\n' "$*"; }
fail() { printf 'demo: %s\n' "$*" >&2; exit 3; }

[ -f "$strata" ] || fail "no $strata; run make demo"

text=$(tools/fetch_text.sh)
say "The text to learn: $text"

say "Planning: where the model is cut, what every rank holds, how long a step should take"
"$strata" plan recipes/demo.yaml

say "Training on two stages, each a thread of this process (under three minutes on two free cores)"
rm -rf "$run"
mkdir -p "$run"
"$strata" train recipes/demo.yaml --report "$run/report.html" --metrics "$run/metrics.jsonl" \
  --trace "$run/trace.json"

say "A sample: what the model writes after \"In the beginning\""
"$strata" generate "$run" --prompt "In the beginning" --bytes 400
echo

say "Written"
printf '  %-26s %s\n' \
  "$run/report.html" "timeline planned and measured, loss, memory; open it in a browser" \
  "$run/metrics.jsonl" "one JSON object a step" \
  "$run/trace.json" "the same timeline for chrome://tracing or ui.perfetto.dev" \
  "$run" "the checkpoint that generate read"
