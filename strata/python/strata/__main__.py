"""python -m strata: the program."""

import os
import sys
from pathlib import Path

from strata._library import folder


def main():
    """Replaces this process by the program `strata`, so that its signals and exit code are the program's."""
    program = Path(os.environ.get("STRATA_PROGRAM", folder() / "bin" / "strata"))
    if not program.exists():
        sys.exit(f"strata: no program at {program}: install the package, or set STRATA_PROGRAM")
    os.execv(program, ["strata", *sys.argv[1:]])


if __name__ == "__main__":
    main()
