#!/usr/bin/env python3
"""Checks that everything that the documents name exists.

    tools/check_docs.py        every path in `backticks`, in shell blocks and in links, every heading a
                               link points to, every `make` target
    tools/check_docs.py --run  also every `strata VERB --flag` of a shell block, against the verb's own
                               help (build/release/strata must be built)

docs/environment.md has a row for every environment variable of ours that a source under strata/
names.

A path may start at the root, the document's folder or strata/. Not checked: paths that
git ignores (build/, runs/), and placeholders (NAME, <name>, *).
"""

import re
import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = ROOT / "build/release/strata"

PATH = re.compile(r"[\w.-]+(/[\w.-]+)*/?")
EXTENSION = re.compile(r"\.(cpp|h|cu|py|sh|md|yaml|cmake|txt|json|supp)$")
PLACEHOLDER = re.compile(r"(^|[/_.-])(?!README|CONTRIBUTING|LICENSE|NOTICE)[A-Z]{2,}([/_.-]|$)")
FENCE = re.compile(r"^ *```(\w*)[^\n]*\n(.*?)^ *```", re.DOTALL | re.MULTILINE)
CODE = re.compile(r"`([^`]+)`")
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def documents():
    names = [ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
    return [path for path in names if path.exists()] + sorted(
        [*ROOT.glob("docs/**/*.md"), *ROOT.glob("bench/*/README.md"), *ROOT.glob("deploy/*.md")])


def ignored(path):
    return subprocess.run(["git", "check-ignore", "-q", path], cwd=ROOT).returncode == 0


def looks_like_path(word):
    """Whether the path must exist: it starts with a folder of the root, or names a folder and a
    file."""
    if not PATH.fullmatch(word) or PLACEHOLDER.search(word) or "/" not in word.rstrip("/"):
        return False
    return (ROOT / word.split("/")[0]).is_dir() or bool(EXTENSION.search(word))


def is_found(word, folder):
    if any((place / word).exists() for place in (ROOT, folder, ROOT / "strata")):
        return True
    return ignored(word)


def slug(heading):
    kept = re.sub(r"[^\w\- ]", "", heading.strip().lower())
    return kept.replace(" ", "-")


def check_link(target, path):
    """The error of a link; empty if it is valid."""
    if re.match(r"[a-z]+:", target):
        return ""
    name, _, anchor = target.partition("#")
    file = (path.parent / name) if name else path
    if not file.exists():
        return f"link to '{name}', which does not exist"
    if anchor and file.suffix == ".md":
        text = FENCE.sub("", file.read_text(encoding="utf-8"))
        headings = [slug(match[1]) for match in re.finditer(r"^#+ (.*)$", text, re.MULTILINE)]
        if anchor not in headings:
            return f"link to '{target}', which has no such heading"
    return ""


def commands(block):
    """The commands of a shell block: continuation lines joined, prompts and comments removed."""
    for line in block.replace("\\\n", " ").splitlines():
        line = re.sub(r"^\s*\$ ", "", line)
        try:
            words = shlex.split(line, comments=True)
        except ValueError:  # a line of output, not a command
            continue
        if words:
            yield words


def targets():
    makefile = ROOT / "Makefile"
    text = makefile.read_text(encoding="utf-8") if makefile.exists() else ""
    rules = re.findall(r"^([\w -]+):(?!=)", text, re.MULTILINE)
    return {target for rule in rules for target in rule.split()}


def check_make(words):
    known = targets()
    return [f"no target '{word}' in the Makefile" for word in words[1:]
            if re.fullmatch(r"[a-z][\w-]*", word) and word not in known]


VERBS_OF_VERBS = {"size"}  # their own verbs have the flags
VERBS = {"plan", "size", "train", "compare", "evaluate", "generate", "serve", "verify", "options", "doctor", "convert"}


def check_program(words):
    """Compares a `strata VERB --flag` with the verb's help."""
    if len(words) < 2 or PLACEHOLDER.search(words[1]) or words[1].startswith(("-", "<")):
        return []
    verb = words[1]
    if verb == "launch":  # other flags belong to the launched verb
        inner = next((i for i, word in enumerate(words) if i > 1 and word in VERBS), len(words))
        own = [word for word in words[:inner] if word != "--"]
        return check_flags(own) + check_program(words[:1] + words[inner:])
    return check_flags(words)


def check_flags(words):
    verb = words[1]
    call = [verb, words[2]] if verb in VERBS_OF_VERBS and len(words) > 2 else [verb]
    requested = subprocess.run([PROGRAM, *call, "--help"], capture_output=True, text=True)
    if requested.returncode != 0:
        return [f"`strata {' '.join(call)}` does not exist"]
    known = set(re.findall(r"--[\w-]+", requested.stdout))
    flags = [word.partition("=")[0] for word in words[2:] if word.startswith("--")]
    return [f"`strata {verb}` has no {flag}" for flag in flags if flag not in known]


def check_words(words, path):
    return [f"'{word}' does not exist" for word in words
            if looks_like_path(word) and not is_found(word, path.parent)]


def check(path, run):
    text = path.read_text(encoding="utf-8")
    problems = []
    blocks = [match[2] for match in FENCE.finditer(text) if match[1] in ("sh", "bash", "console")]
    prose = FENCE.sub("", text)
    lines = [command for block in blocks for command in commands(block)]
    lines += [command for code in CODE.findall(prose) for command in commands(code)]
    for words in lines:
        problems += check_words(words, path)
        if words[0] == "make":
            problems += check_make(words)
        if run and words[0] in ("strata", "build/release/strata"):
            problems += check_program(words)
    problems += [check_link(target, path) for target in LINK.findall(CODE.sub("", prose))]
    return [f"{path.relative_to(ROOT)}: {problem}" for problem in dict.fromkeys(problems) if problem]


def missing_variables():
    """Our environment variables that sources use and docs/environment.md lacks."""
    page = (ROOT / "docs/environment.md").read_text(encoding="utf-8")
    named = set()
    for path in (ROOT / "strata").rglob("*"):
        if path.suffix in (".h", ".cpp") and "_test" not in path.name:
            named.update(re.findall(r'"(STRATA_[A-Z_]+)"', path.read_text(encoding="utf-8")))
    return [f"docs/environment.md: no row for {name}" for name in sorted(named) if f"`{name}`" not in page]


def main():
    run = "--run" in sys.argv[1:]
    if run and not PROGRAM.exists():
        print(f"check_docs: {PROGRAM.relative_to(ROOT)} is missing; run make build", file=sys.stderr)
        return 1
    pages = documents()
    problems = [problem for page in pages for problem in check(page, run)] + missing_variables()
    if problems:
        print("\n".join(problems))
        print(f"check_docs: {len(problems)} problems", file=sys.stderr)
        return 1
    print(f"check_docs: {len(pages)} pages name only what exists" + (", commands too" if run else ""))
    return 0


if __name__ == "__main__":
    sys.exit(main())
