#!/usr/bin/env python3
"""Links the objects of CUDA sources with a CPU build, as far as possible without a CUDA libtorch.

    tools/cuda_link.py --cpu-build build/release --toolkit FOLDER --out build/cuda-compile

Repeats the command that linked the CPU build's program with the CUDA objects (OUT/objects.txt)
first: they replace the *_no_cuda.cpp, which refuse. Repeats it with the tests that need a GPU
(OUT/test_objects.txt) instead of main(), and with bench/gpu (OUT/bench_objects.txt). An undefined
name must belong to a library of a CUDA libtorch: c10_cuda, torch_cuda, cuBLASLt, NCCL. Any other
name is a function that Strata declares but does not define, or defines twice, and is refused.

--left-out names sources that were not compiled because one of NVIDIA's headers is missing. Names
that only they define may be missing, too; they are printed.

The linked programs never run.
"""

import argparse
import re
import shlex
import subprocess
import sys
from pathlib import Path

# (the library, mangled names)
PROVIDED = [
    ("c10_cuda, torch_cuda", re.compile(r"_Z(?:T[VISTC]|GV)?N[rVK]*[RO]?(?:3c104cuda|2at4cuda|5torch4cuda)\d")),
    ("cuBLASLt", re.compile(r"cublasLt[A-Z]\w*$")),
    ("NCCL", re.compile(r"nccl[A-Z]\w*$")),
]
UNDEFINED = re.compile(r"(?:undefined symbol: |undefined reference to `)([^\s']+)")


def link_command(cpu_build):
    """The arguments that linked CPU_BUILD/strata; paths are relative to CPU_BUILD."""
    commands = subprocess.run(["ninja", "-C", cpu_build, "-t", "commands", "strata"], capture_output=True,
                              text=True, check=False)
    if commands.returncode:
        sys.exit(f"cuda_link: {cpu_build} is no finished build: {commands.stderr or commands.stdout}")
    line = commands.stdout.strip().splitlines()[-1]
    arguments = shlex.split(line)
    # ": && compiler ... && :"
    steps = [[]]
    for argument in arguments:
        if argument == "&&":
            steps.append([])
        else:
            steps[-1].append(argument)
    return next(step for step in steps if "-o" in step)


def for_objects(arguments, objects, without_main, out, toolkit):
    """The same command for other objects."""
    arguments = list(arguments)
    place = arguments.index("-o")
    arguments[place + 1] = str(out)
    # Before the program's own objects.
    first = next(i for i, argument in enumerate(arguments) if argument.endswith(".o"))
    if without_main:
        arguments = [a for a in arguments if "/strata.dir/" not in a] + ["-lgtest"]
    arguments[first:first] = objects
    runtimes = [path for folder in ("lib64", "lib") for path in sorted(toolkit.glob(f"{folder}/libcudart.so*"))]
    arguments += [str(path) for path in runtimes[:1]]
    arguments += ["-Wl,--no-demangle", "-Wl,--warn-unresolved-symbols"]
    if any("lld" in argument for argument in arguments):
        arguments.append("-Wl,--error-limit=0")
    return arguments


def undefined(arguments, cpu_build):
    """Links and returns the names that nothing defines."""
    done = subprocess.run(arguments, cwd=cpu_build, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"cuda_link: the objects do not link:\n{done.stderr}{done.stdout}")
    return sorted(set(UNDEFINED.findall(done.stderr + done.stdout)))


def readable(names):
    return subprocess.run(["c++filt"], input="\n".join(names), capture_output=True, text=True,
                          check=True).stdout.splitlines()


def library_of(name):
    return next((library for library, names in PROVIDED if names.match(name)), None)


def last_name(text):
    """strata::Lt::product(at::Tensor const&) -> product"""
    found = re.match(r"[\w:<>~, ]*?(\w+)(?:<.*>)?(?:\[abi:\w+\])?(?:\(|$)", text)
    return found[1] if found else text


def sort_names(names, left_out_texts):
    """The names without a definition, the number of names per library, and those of left-out
    sources."""
    wanted, provided, left_out = [], {}, []
    for name, text in zip(names, readable(names)):
        library = library_of(name)
        if library:
            provided[library] = provided.get(library, 0) + 1
        elif text.split("(")[0].find("strata::") >= 0 and any(
                re.search(rf"\b{re.escape(last_name(text))}\b", source) for source in left_out_texts):
            left_out.append(text)
        else:
            wanted.append(text)
    return wanted, provided, left_out


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--cpu-build", type=Path, required=True)
    parser.add_argument("--toolkit", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--sources", type=int, default=0)
    parser.add_argument("--architectures", default="90a")
    parser.add_argument("--left-out", nargs="*", default=[])
    arguments = parser.parse_args()
    command = link_command(arguments.cpu_build)
    texts = [Path(source).read_text(encoding="utf-8") for source in arguments.left_out]
    refused = False
    def objects_of(kind):
        file = arguments.out / f"{kind}objects.txt"
        return file.read_text().split() if file.exists() else []

    for program, objects in (("strata", objects_of("")), ("tests", objects_of("test_") + objects_of("")),
                             ("bench", objects_of("bench_"))):
        if not objects:
            continue
        names = undefined(for_objects(command, objects, program != "strata", arguments.out / f"{program}_not_run",
                                      arguments.toolkit), arguments.cpu_build)
        wanted, provided, left_out = sort_names(names, texts)
        for text in wanted:
            print(f"cuda_link: {program}: no library defines {text}")
        for text in left_out:
            print(f"cuda_link: {program}: defined in a source that is left out: {text}")
        refused = refused or bool(wanted)
        print(f"cuda_link: {program}: left to a CUDA libtorch: " +
              (", ".join(f"{count} names of {library}" for library, count in provided.items()) or "nothing"))
    if refused:
        return 1
    print(f"cuda-compile: {arguments.sources} sources compiled for sm_{arguments.architectures} and linked; "
          "none was run" +
          (f"; left out for want of a header: {' '.join(Path(s).name for s in arguments.left_out)}"
           if arguments.left_out else ""))
    return 0


if __name__ == "__main__":
    sys.exit(main())
