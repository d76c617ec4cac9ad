#!/usr/bin/env python3
"""Analyses the machine code of every kernel for sm_90a without running it.

    tools/kernel_code.py [--check] [FILE.cu ...]        default: all; after make cuda-compile, whose commands it uses

registers   per thread: a multiprocessor has 65,536 for all threads that hide each other's waits
reads       runs of 16-byte reads of global memory before the first wait: a kernel with runs of one waits for each
            read, and reaches a fraction of the memory's rate
writes      16-byte writes, and narrower ones (including those for incomplete ends)
code        instructions, all branches together

--check refuses a kernel with shorter runs of reads than EXPECTED, or without 16-byte writes
although its results are vectors. Needs an nvcc of release 13.0, the one of EXPECTED, and nvdisasm,
which is installed in build/nvdisasm if it is missing. Exits with 77, and prints the reason, if
either is unavailable.
"""

import argparse
import collections
import json
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build/cuda-compile"
WHEEL = ROOT / "build/nvdisasm"

# kernel -> the longest run of reads and whether it writes vectors
EXPECTED = {
    r"(Gelu|Relu|GatherRows|AddRepeated)\b.*": (1, True),
    r"(GeluBackward|Swiglu|Add|DropoutAdd|Again)\b.*": (2, True),
    r"(SwigluBackward|MultiplyAdd)\b.*": (3, True),
    r"Rotate\b.*": (4, True),
    r"Forward<.*Whole, \d+, 4>.*": (4, True),
    r"Backward<.*Whole, \d+, 4>.*": (8, True),
    r"ColumnTiles<NormTerms.*": (4, False),
    r"ColumnTiles<ColumnValues.*": (3, False),
    r"SumRows\b.*": (4, False),
    r"Alone\b.*": (4, True),
    r"Update<\(UpdateRule\)0>.*": (4, True),
    r"SumInOrder\b.*": (4, True),
    r"AddRows\b.*": (4, True),
}


def skip(why):
    print(f"kernel_code: {why}", file=sys.stderr)
    sys.exit(77)


def commands():
    """Source -> the command that compiled it, with its machine code as the only result."""
    listed = subprocess.run(["ninja", "-C", BUILD, "-t", "compdb"], capture_output=True, text=True, check=False)
    if listed.returncode:
        skip(f"{BUILD} is no build: run make cuda-compile")
    found = {}
    for entry in json.loads(listed.stdout):
        words = shlex.split(entry["command"])
        if not entry["file"].endswith(".cu"):
            continue
        nvcc = next(i for i, word in enumerate(words) if word.endswith("/nvcc"))
        flags = [word for word in words[nvcc:words.index("-MD")] if not word.startswith("--generate-code")]
        found[Path(entry["file"])] = [*flags, "-arch=sm_90a", "-Xptxas=-v", "-cubin", entry["file"]]
    return found


def find_nvdisasm(toolkit):
    for path in (shutil.which("nvdisasm"), toolkit / "nvdisasm", *WHEEL.glob("nvidia/*/bin/nvdisasm")):
        if path and Path(path).exists():
            return path
    python = ROOT / ".venv/bin/python"
    subprocess.run([python if python.exists() else sys.executable, "-m", "pip", "install", "--quiet", "--no-deps",
                    "--disable-pip-version-check", "--target", WHEEL, "nvidia-cuda-nvdisasm==13.2.78"],
                   capture_output=True, check=False)
    found = list(WHEEL.glob("nvidia/*/bin/nvdisasm"))
    return found[0] if found else skip("no nvdisasm on this machine, and its wheel cannot be installed")


def readable(names):
    out = subprocess.run(["c++filt", "-p"], input="\n".join(names), capture_output=True, text=True, check=True).stdout
    for noise in ("(anonymous namespace)::", "strata::", "simt::", "cuda::", "kernels::"):
        out = out.replace(noise, "")
    return [re.sub(r"^(?:void )?run<(.*?) ?>$", r"\1", line) for line in out.splitlines()]


class Kernel:
    def __init__(self):
        self.code, self.runs, self.stores, self.registers = 0, [], collections.Counter(), 0
        self.under_way, self.run = set(), 0

    def add(self, instruction):
        self.code += 1
        read = re.search(r"\bLDG\.E\.128\S* R(\d+)", instruction)
        if read:
            first = int(read.group(1))
            self.under_way |= set(range(first, first + 4))
            self.run += 1
            return
        if re.search(r"\bSTG\b", instruction):
            self.stores["whole" if ".128" in instruction else "narrow"] += 1
        if self.under_way & {int(r) for r in re.findall(r"\bR(\d+)\b", instruction)}:
            self.end_run()

    def end_run(self):
        if self.run:
            self.runs.append(self.run)
        self.under_way, self.run = set(), 0


def kernels_of(source, command, nvdisasm, folder):
    cubin = Path(folder) / (source.stem + ".cubin")
    built = subprocess.run([*command, "-o", cubin], cwd=BUILD, capture_output=True, text=True, check=False)
    if built.returncode:
        sys.exit(f"kernel_code: {source}:\n{built.stderr}")
    listing = subprocess.run([nvdisasm, "-c", cubin], capture_output=True, text=True, check=True).stdout
    found, name = {}, None
    for line in listing.splitlines():
        begin = re.match(r"\s*\.text\.(\S+):", line)
        if begin:
            name = begin.group(1)
            found[name] = Kernel()
        instruction = re.search(r"/\*[0-9a-f]{4,}\*/\s+(.*?);", line)
        if name and instruction:
            found[name].add(instruction.group(1))
    for name, registers in re.findall(r"entry function '(\S+)'.*?Used (\d+) registers", built.stderr, re.S):
        if name in found:
            found[name].registers = int(registers)
    for kernel in found.values():
        kernel.end_run()
    return source.stem, {text: found[name] for name, text in zip(found, readable(found)) if "cub::" not in text}


def faults(kernels):
    for pattern, (reads, vectors) in EXPECTED.items():
        matching = [(name, kernel) for name, kernel in kernels if re.fullmatch(pattern, name)]
        if not matching:
            yield f"no kernel is called {pattern}"
        for name, kernel in matching:
            if max(kernel.runs, default=0) < reads:
                yield f"{name}: {max(kernel.runs, default=0)} reads of 16 bytes under way, {reads} are meant"
            if vectors and not kernel.stores["whole"]:
                yield f"{name}: writes no 16 bytes at once"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--check", action="store_true")
    parser.add_argument("sources", nargs="*", type=Path)
    options = parser.parse_args()
    known = commands()
    nvcc = Path(next(iter(known.values()))[0])
    nvdisasm = find_nvdisasm(nvcc.parent)
    release = re.search(r"release (\S+),", subprocess.run([nvcc, "--version"], capture_output=True, text=True,
                                                          check=True).stdout).group(1)
    if options.check and release != "13.0":
        skip(f"nvcc is of release {release}, what is expected was read from 13.0")
    sources = [source.resolve() for source in options.sources] or sorted(known)
    for source in sources:
        if source not in known:
            sys.exit(f"kernel_code: {source} is no source that make cuda-compile compiles")
    all_kernels = []
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(2) as pool:
        print(f"{'kernel':64} registers  code  reads under way      writes")
        for stem, kernels in pool.map(lambda source: kernels_of(source, known[source], nvdisasm, folder), sources):
            for name, kernel in kernels.items():
                runs = " ".join(map(str, kernel.runs[:9])) + (" ..." if len(kernel.runs) > 9 else "")
                print(f"{stem + ' ' + name:64.64} {kernel.registers:9} {kernel.code:5}  {runs:20} "
                      f"{kernel.stores['whole']} + {kernel.stores['narrow']} narrow")
            all_kernels += kernels.items()
    found = list(faults(all_kernels)) if options.check else []
    for fault in found:
        print("kernel_code:", fault, file=sys.stderr)
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
