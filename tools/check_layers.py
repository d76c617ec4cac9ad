#!/usr/bin/env python3
"""Refuses an include that breaks the levels of the folders under strata/ (see
docs/architecture.md), and a tensor factory that does not state the device of its bytes (see
strata/device/device.h)."""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

LEVELS = [
    ["base"],
    ["layout", "disk", "transport", "pretrained", "tabular", "batching", "grammar", "device"],
    ["schedule", "comm", "tokenizer", "jinja", "rowserver", "http"],
    ["plan", "report", "nn", "data", "embed", "openai"],
    ["optim", "models", "kserve", "images", "clock", "claim"],
    ["tier"],
    ["checkpoint"],
    ["pipeline", "exported"],
    ["measure"],
    ["train", "serve"],
    ["task", "rollout"],
    ["run"],
    ["session"],
    ["cli"],
    ["python"],
]
# The rooms of a folder: a room includes only itself, earlier rooms and the folder's own files;
# tests may include all.
ROOMS = {
    "plan": ["simulate", "ledger", "search", "text"],
    "rowserver": ["codec", "rows", "shard", "wire"],
    "kserve": ["model", "rest", "rpc"],
}
# A task that a program may be built without, with the folders that it alone needs: only they and
# the rooms of its name (task/recommender, run/recommender, cli/recommender) see one another, and
# tests. What the list of tasks needs of it is in X_kind.h.
TASKS = {task: folders.split() for task, folders in
         re.findall(r"^set\(STRATA_FOLDERS_OF_(\w+) ([^)]*)\)", (ROOT / "cmake/tasks.cmake").read_text(), re.MULTILINE)}
LEVEL = {folder: level for level, folders in enumerate(LEVELS) for folder in folders}

# Restricted headers: (headers, their name in the message, folders that may include them).
SIGHT = [
    (re.compile(r"(torch|ATen|c10)/"), "torch",
     lambda folder, file: folder not in ("base", "layout", "disk", "schedule", "transport", "pretrained", "tokenizer",
                                        "report", "plan", "tabular", "jinja", "batching", "grammar", "rowserver", "http",
                                        "embed", "openai", "kserve", "clock", "claim")),
    (re.compile(r"(torch/csrc/distributed/)?c10d/"), "c10d",
     lambda folder, file: folder == "comm"),
    (re.compile(r"rocksdb/"), "RocksDB",
     lambda folder, file: (folder, file) == ("rowserver", "rows/cold_rows.cpp")),
    (re.compile(r"grpc(pp)?/|google/protobuf/|\w+\.pb\.h"), "gRPC",
     lambda folder, file: folder in ("rowserver", "kserve") and file.split("/")[0] in ("wire", "rpc")),
    (re.compile(r"boost/"), "Boost",
     lambda folder, file: folder == "http" and file in ("http_server.cpp", "http_server_socket.h")),
    (re.compile(r"cu(da|blas|dnn|rand|fft|solver|sparse)\w*(\.h|/)|nccl\w*\.h|nvtx|nvToolsExt"
                r"|ATen/cuda/|c10/cuda/|torch/csrc/cuda/"), "CUDA",
     lambda folder, file: folder == "device" or IS_CUDA.search(f"{folder}/{file}")),
]

# Sources that only a build with CUDA compiles (cmake/cuda_sources.cmake); folder/path.
IS_CUDA = re.compile(r"\.cuh?$|_cuda(_test)?\.cpp$|/cuda/[^/]*$|^comm/nccl_[^/]*$")

INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]')
# The arguments must include options: a tensor's, the device's or host_options().
FACTORY = re.compile(r"\b(?:at|torch)::(?:zeros|ones|empty|full|arange|tensor|from_blob|rand|randn|randint"
                     r"|eye|linspace|scalar_tensor|empty_strided)\(")


def bare_factories(text):
    """The lines of factories without options."""
    lines = []
    for found in FACTORY.finditer(text):
        depth, end = 1, found.end()
        while depth and end < len(text):
            depth += {"(": 1, ")": -1}.get(text[end], 0)
            end += 1
        if not re.search(r"options\b", text[found.end():end]):
            lines.append(text.count("\n", 0, found.start()) + 1)
    return lines


def task_of(folder, room):
    """The task that a program is built without, if it may not see this folder or room; none: ""."""
    has_rooms = folder in ("task", "run", "cli")  # nn/graph is no room of the task graph
    return next((task for task, folders in TASKS.items() if folder in folders or has_rooms and room == task), "")


def task_refusal(folder, file, seen, seen_path):
    """The same as refusal(), for what only a task may see; seen_path: the header without strata/FOLDER/."""
    room, seen_room = file.split("/")[0], seen_path.split("/")[0]
    task = task_of(seen, seen_room)
    if "_test." in file or seen_path.endswith("_kind.h") or task == task_of(folder, room):
        return ""
    if task:
        return f"{folder}/{file} is in programs without the task {task}, and may not see {seen}"
    if folder == seen == "task" and seen_room == "text" and room not in ("text", "kinds"):
        return f"task/{room} may not see task/text: tasks do not know one another"
    return ""


def refusal(folder, file, header):
    """The reason why `file` of `folder` may not include `header`; empty if it may."""
    if header.startswith("strata/"):
        seen = header.split("/")[1]
        if seen not in LEVEL:
            return f"folder '{seen}' has no level"
        if seen != folder and LEVEL[seen] >= LEVEL[folder]:
            return (f"{folder} (level {LEVEL[folder]}) may not see {seen} (level {LEVEL[seen]}): "
                    "only folders of earlier levels")
        rooms = ROOMS.get(folder, [])
        room, seen_room = file.split("/")[0], header.split("/")[2]
        if seen == folder and "_test." not in file and room in rooms and seen_room in rooms[rooms.index(room) + 1:]:
            return f"{folder}/{room} may not see {folder}/{seen_room}: only earlier rooms"
        if why := task_refusal(folder, file, seen, "/".join(header.split("/")[2:])):
            return why
    elif ".." in header.split("/"):
        return "write the path from the root: strata/FOLDER/FILE.h"
    for headers, name, allowed in SIGHT:
        if headers.match(header) and not allowed(folder, file):
            return f"{folder} may not see {name} headers"
    return ""


def main():
    problems, files = [], 0
    for path in sorted((ROOT / "strata").rglob("*")):
        if path.suffix not in (".h", ".cpp", ".cu", ".cuh"):
            continue
        files += 1
        place, folder = path.relative_to(ROOT), path.relative_to(ROOT).parts[1]
        if folder not in LEVEL:
            problems.append(f"{place}: folder '{folder}' has no level; add it to tools/check_layers.py")
            continue
        text = path.read_text(encoding="utf-8")
        if "_test." not in path.name:
            problems += [f"{place}:{line}: a tensor factory without options: device.options(dtype), "
                         "host_options(dtype) or those of another tensor" for line in bare_factories(text)]
        for number, line in enumerate(text.splitlines(), 1):
            include = INCLUDE.match(line)
            why = include and refusal(folder, "/".join(place.parts[2:]), include[1])
            if why:
                problems.append(f"{place}:{number}: {include[1]}: {why}")
    if problems:
        print("\n".join(problems))
        print(f"check_layers: {len(problems)} places", file=sys.stderr)
        return 1
    print(f"check_layers: {files} files keep to the levels")
    return 0


if __name__ == "__main__":
    sys.exit(main())
