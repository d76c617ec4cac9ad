#!/usr/bin/env python3
"""Measures the lines of files and functions; refuses a file over 600 lines, a function over 80, or
a line of a comment over 100 columns, which clang-format leaves as it is.

The goals are lower (files 400, functions 40, see CONTRIBUTING.md); only these limits are enforced.
Functions are found by their braces, which is exact for sources that clang-format has laid out; the
lines of a raw string in a function are data and do not count.
    tools/size.py           one line, or the list of what is too long
    tools/size.py --table   also a table by folder and the longest of each kind
"""

import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FILE_LIMIT, FUNCTION_LIMIT, COLUMN_LIMIT = 600, 80, 100

INVISIBLE = re.compile(
    r'//[^\n]*'
    r'|/\*.*?\*/'
    r'|R"([^\s()\\]{0,16})\(.*?\)\1"'
    r'|"(?:\\.|[^"\\\n])*"'
    r"|(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+'"  # excludes the separator of 1'000
    r'|^[ \t]*\#(?:[^\n]*\\\n)*[^\n]*',
    re.DOTALL | re.MULTILINE)
SCOPE = re.compile(r"(?:template\s*<.*>\s*)?(?:inline\s+)?(?:typedef\s+)?"
                   r"(?:namespace|class|struct|union|enum|extern)\b", re.DOTALL)
LABELS = ("public", "private", "protected")


def visible(text):
    """Blanks comments, literals and preprocessor lines; a line break in a raw string becomes
    \\v."""
    def blank(match):
        spaces = re.sub(r"[^\n]", " ", match[0])
        return spaces.replace("\n", "\v") if match[0].startswith("R") else spaces
    return INVISIBLE.sub(blank, text)


def opened_by(head, attached, parentheses, inside):
    """The kind of the brace after `head`: scope, function, or anything else (block)."""
    if inside == "function" or inside == "block" or parentheses or attached or head.endswith("="):
        return "block"
    if SCOPE.match(head):
        return "scope"
    return "function" if "(" in head else "block"


def functions(text):
    """Yields (first line, lines, name) of every function body at namespace or class scope."""
    text = visible(text)
    stack, head, parentheses, line, first, raw = [], "", 0, 1, 1, 0
    for i, char in enumerate(text):
        line += char in "\n\v"
        raw += char == "\v"
        if char == "{":
            attached = text[i - 1].isalnum() or text[i - 1] in "_>"
            kind = opened_by(head.strip(), attached, parentheses, stack[-1][0] if stack else "")
            stack.append((kind, first, head, parentheses, raw))
            if kind != "block":
                head = ""
            parentheses = 0
        elif char == "}" and stack:
            kind, begin, outer_head, parentheses, raw_before = stack.pop()
            if kind == "function":
                name = outer_head.strip().split("(")[0].split()
                yield begin, line - begin + 1 - (raw - raw_before), name[-1] if name else "?"
            # A braced value belongs to the enclosing code; a body ends it.
            head = outer_head + "{}" if kind == "block" else ""
        elif (char == ";" and not parentheses) or (char == ":" and head.strip() in LABELS):
            head = ""
        else:
            parentheses += (char == "(") - (char == ")")
            if not head.strip():
                first = line
            head += char


def sources():
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", "*.h", "*.cpp",
         "*.cu"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return sorted({name for name in listed.split("\0") if name and (ROOT / name).exists()})


def spread(sizes):
    sizes = sorted(sizes) or [0]
    return f"{sizes[len(sizes) // 2]:4} {sizes[len(sizes) * 9 // 10]:4} {sizes[-1]:4}"


def print_table(files, found):
    by_folder = defaultdict(lambda: ([], []))
    for name, lines in files.items():
        for key in ("/".join(name.split("/")[:-1][:2]), "all"):
            by_folder[key][0].append(lines)
            by_folder[key][1].extend(size for place, _, size, _ in found if place == name)
    print(f"{'':24}  files  median p90 max  functions  median p90 max")
    for folder in sorted(by_folder, key=lambda name: (name == "all", name)):
        lines, sizes = by_folder[folder]
        print(f"{folder:24}  {len(lines):5}    {spread(lines)}  {len(sizes):9}    {spread(sizes)}")
    print("\nlongest files")
    for name, lines in sorted(files.items(), key=lambda item: -item[1])[:5]:
        print(f"  {lines:4}  {name}")
    print("longest functions")
    for place, first, size, name in sorted(found, key=lambda item: -item[2])[:5]:
        print(f"  {size:4}  {place}:{first} {name}")
    print()


def main():
    files, found, wide = {}, [], []
    for name in sources():
        text = (ROOT / name).read_text(encoding="utf-8")
        files[name] = text.count("\n")
        wide += [(name, line) for line, content in enumerate(text.split("\n"), 1)
                 if len(content) > COLUMN_LIMIT and content.lstrip().startswith("//")]
        found += [(name, *function) for function in functions(text)]
    if "--table" in sys.argv[1:]:
        print_table(files, found)
    problems = [f"{name}: {lines} lines; split it (limit {FILE_LIMIT})"
                for name, lines in files.items() if lines > FILE_LIMIT]
    problems += [f"{place}:{first}: {name} has {size} lines; split it (limit {FUNCTION_LIMIT})"
                 for place, first, size, name in found if size > FUNCTION_LIMIT]
    problems += [f"{name}:{line}: a comment of more than {COLUMN_LIMIT} columns; wrap it"
                 for name, line in wide]
    if problems:
        print("\n".join(problems))
        print(f"size: {len(problems)} too long", file=sys.stderr)
        return 1
    print(f"size: {len(files)} files, longest {max(files.values(), default=0)} lines; {len(found)} "
          f"functions, longest {max((size for _, _, size, _ in found), default=0)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
