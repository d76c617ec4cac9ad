#!/usr/bin/env bash
# Writes the King James text of Debian's bible-kjv to data/kjv.txt, once.
set -euo pipefail
cd "$(dirname "$0")/.."

text=data/kjv.txt
least=4000000
if [ ! -s "$text" ]; then
  command -v bible >/dev/null ||
    { echo "fetch_text: the program 'bible' is missing; run tools/bootstrap.sh" >&2; exit 3; }
  mkdir -p data
  bible -f gen1:1-rev22:21 </dev/null >"$text.part"
  mv "$text.part" "$text"
fi
bytes=$(wc -c <"$text")
[ "$bytes" -gt "$least" ] ||
  { echo "fetch_text: $text has $bytes bytes, expected more than $least; delete it" >&2; exit 3; }
echo "$text, $bytes bytes, from the Debian package bible-kjv"
