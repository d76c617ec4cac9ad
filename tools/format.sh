#!/usr/bin/env bash
# Formats every C++ source that git tracks or would track; --check only lists those it would change.
set -euo pipefail
cd "$(dirname "$0")/.."

format=$(command -v clang-format-19 || command -v clang-format) || {
  echo "format: clang-format-19 is missing; install it: apt-get install clang-format-19" >&2
  exit 1
}
sources() { git ls-files -z --cached --others --exclude-standard --deduplicate -- '*.h' '*.cpp' '*.cu'; }
# A file that is deleted but still tracked has nothing to format.
mapfile -d '' files < <(sources | while IFS= read -rd '' file; do [ ! -e "$file" ] || printf '%s\0' "$file"; done)

case "${1:-}" in
  "")
    "$format" -i "${files[@]}"
    echo "format: ${#files[@]} files formatted"
    ;;
  --check)
    violations=$("$format" --dry-run --Werror "${files[@]}" 2>&1 || true)
    if [ -n "$violations" ]; then
      sed -n 's/^\([^ :][^:]*\):.*clang-format-violations.*/\1/p' <<<"$violations" | sort -u
      echo "format: not formatted as .clang-format says; run make format" >&2
      exit 1
    fi
    echo "format: ${#files[@]} files are formatted"
    ;;
  *)
    echo "usage: tools/format.sh [--check]" >&2
    exit 2
    ;;
esac
