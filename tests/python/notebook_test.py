"""Runs the notebook of examples/python and looks for its pictures. Skipped without nbconvert and ipykernel."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

from package import SKIPPED, import_strata

import_strata()
try:
    import ipykernel  # noqa: F401
    import nbconvert  # noqa: F401
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(SKIPPED)

NOTEBOOK = pathlib.Path(__file__).resolve().parents[2] / "examples/python/first_steps.ipynb"


class NotebookTest(unittest.TestCase):
    def test_runs_and_shows_plan_and_report(self):
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run([sys.executable, "-m", "nbconvert", "--to", "html", "--execute", str(NOTEBOOK), "--output-dir", folder],
                                  capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 0, done.stderr)
            page = (pathlib.Path(folder) / "first_steps.html").read_text()
        self.assertEqual(page.count("<iframe"), 2)
        self.assertIn("predicted", page)
        self.assertRegex(page, r"accuracy 0\.9\d|accuracy 1\.0")


if __name__ == "__main__":
    unittest.main()
