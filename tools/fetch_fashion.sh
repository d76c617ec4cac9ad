#!/usr/bin/env bash
# Writes Fashion-MNIST (70,000 images of clothes, 28 x 28, ten classes), from Debian's package
# dataset-fashion-mnist, to data/fashion, once, unpacked.
set -euo pipefail
cd "$(dirname "$0")/.."

package=dataset-fashion-mnist
folder=data/fashion

if [ ! -s "$folder/train-images-idx3-ubyte" ]; then
  scratch=$(mktemp -d)
  trap 'rm -rf "$scratch"' EXIT
  # apt's own user cannot write to the folder, which it would report.
  (cd "$scratch" && apt-get download -qq -o APT::Sandbox::User=root "$package") ||
    { echo "fetch_fashion: the Debian package $package cannot be fetched" >&2; exit 3; }
  dpkg -x "$scratch/$package"_*.deb "$scratch/files"
  mkdir -p "$folder"
  for file in "$scratch"/files/usr/share/datasets/fashion-mnist/*.gz; do
    name=$(basename "$file" .gz)
    gunzip -c "$file" >"$folder/$name.part"
    mv "$folder/$name.part" "$folder/$name"
  done
fi
sha256sum --quiet --check <<EOF || { echo "fetch_fashion: delete $folder and try again" >&2; exit 3; }
5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b  $folder/t10k-images-idx3-ubyte
0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34  $folder/t10k-labels-idx1-ubyte
c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888  $folder/train-images-idx3-ubyte
bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9  $folder/train-labels-idx1-ubyte
EOF
echo "$folder: 60,000 images to train on, 10,000 to test, from the Debian package $package"
