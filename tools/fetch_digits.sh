#!/usr/bin/env bash
# Writes the 1,797 handwritten digits of UCI, from the Python package `scikit-learn`, to
# data/digits/digits.csv, once: 64 pixels from 0 to 16 and the digit, without a header.
set -euo pipefail
cd "$(dirname "$0")/.."

package=scikit-learn==1.9.1
folder=data/digits
sum=6ebb3d2fee246a4e99363262ddf8a00a3c41bee6014c373ed9d9216ba7f651b8

if [ ! -s "$folder/digits.csv" ]; then
  scratch=$(mktemp -d)
  trap 'rm -rf "$scratch"' EXIT
  pip=.venv/bin/pip
  [ -x "$pip" ] || pip=pip3
  "$pip" download --quiet --no-deps --only-binary :all: --dest "$scratch" "$package" ||
    { echo "fetch_digits: the Python package $package cannot be fetched" >&2; exit 3; }
  mkdir -p "$folder"
  python3 -c 'import gzip, sys, zipfile
wheel = zipfile.ZipFile(sys.argv[1])
sys.stdout.buffer.write(gzip.decompress(wheel.read("sklearn/datasets/data/digits.csv.gz")))' \
    "$scratch"/scikit_learn-*.whl >"$folder/digits.csv.part"
  mv "$folder/digits.csv.part" "$folder/digits.csv"
fi
sha256sum --quiet --check <<EOF || { echo "fetch_digits: delete $folder and try again" >&2; exit 3; }
$sum  $folder/digits.csv
EOF
echo "$folder: $(wc -l <"$folder/digits.csv") digits, from the Python package $package"
