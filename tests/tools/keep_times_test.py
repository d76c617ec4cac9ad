"""Tests that tools/keep_times.py restores the time of an unchanged copy, and not of a changed
file."""

import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

TOOL = Path(__file__).resolve().parents[2] / "tools/keep_times.py"
OLD, COPIED = 1_000_000_000, 2_000_000_000


class KeepTimes(unittest.TestCase):
    def test_unchanged_file_keeps_time(self):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            (folder / "tree/inner").mkdir(parents=True)
            same, changed, alone = folder / "tree/inner/same", folder / "tree/changed", folder / "alone"

            def write(time, text):
                for path in (same, changed, alone):
                    path.write_text(text if path == changed else "same")
                    os.utime(path, (time, time))
                subprocess.run([sys.executable, TOOL, folder / "build/record", folder / "tree", alone], check=True)

            write(OLD, "old")
            for text in ("new", "newer"):  # copied twice
                write(COPIED, text)
                self.assertEqual([path.stat().st_mtime for path in (same, alone, changed)], [OLD, OLD, COPIED])
            (folder / "tree/more").touch()
            write(COPIED, "newer")


if __name__ == "__main__":
    unittest.main()
