"""Tests that the version source names the commit of a checkout, and is rewritten only when that
changes."""

import pathlib
import subprocess
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "cmake/version.cmake"


class Version(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.source = pathlib.Path(folder.name) / "source"
        self.source.mkdir()
        self.output = pathlib.Path(folder.name) / "version.cpp"

    def write(self):
        subprocess.run(["cmake", "-D", "VERSION=1.2.3", "-D", f"SOURCE={self.source}", "-D", f"OUTPUT={self.output}",
                        "-P", SCRIPT], check=True)
        return self.output.read_text().split('"')[-2]

    def git(self, *arguments):
        identity = ("-c", "user.name=test", "-c", "user.email=test@test")
        done = subprocess.run(["git", "-C", self.source, *identity, *arguments], check=True, capture_output=True, text=True)
        return done.stdout.strip()

    def commit(self):
        self.git("add", ".")
        self.git("commit", "--allow-empty", "-m", "one")
        return self.git("rev-parse", "HEAD")[:12]

    def test_folder_without_checkout_has_only_number(self):
        self.assertEqual(self.write(), "1.2.3")
        # Nor has one inside another repository.
        self.git("init")
        self.commit()
        self.source /= "inside"
        self.source.mkdir()
        self.assertEqual(self.write(), "1.2.3")

    def test_checkout_has_commit_and_mark_of_changes(self):
        self.git("init")
        (self.source / "file").write_text("one")
        first = self.commit()
        self.assertEqual(self.write(), f"1.2.3, commit {first}")
        before = self.output.stat().st_mtime_ns
        self.write()
        self.assertEqual(self.output.stat().st_mtime_ns, before)
        (self.source / "file").write_text("two")
        self.assertEqual(self.write(), f"1.2.3, commit {first} with changes")
        second = self.commit()
        self.assertNotEqual(first, second)
        self.assertEqual(self.write(), f"1.2.3, commit {second}")


if __name__ == "__main__":
    unittest.main()
