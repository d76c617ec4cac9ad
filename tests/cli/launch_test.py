"""strata launch: several processes of one machine, one exit code, no orphans."""

import os
import signal
import time
import unittest

from strata_program import ProgramTest


def children_of(pid):
    """Process ids whose parent is `pid`."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat") as file:
                    if int(file.read().rsplit(")", 1)[1].split()[1]) == pid:
                        found.append(int(name))
            except (FileNotFoundError, ProcessLookupError):
                pass
    return found


def wait_until(condition, seconds=20):
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def gone(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


class Launch(ProgramTest):
    LONG = ("launch", "-n", "2", "--", "train", "recipe.yaml", "--set", "train.steps=1000000")

    def start_long(self):
        launcher = self.start(*self.LONG)
        self.addCleanup(launcher.communicate)
        self.addCleanup(launcher.kill)
        self.assertTrue(wait_until(lambda: len(children_of(launcher.pid)) == 2))
        return launcher, children_of(launcher.pid)

    def test_runs_a_verb_in_every_process(self):
        process = self.start("launch", "-n", "3", "options")
        out, _ = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 0)
        self.assertEqual(out.count("train.mini_batch"), 3)

    def test_ends_with_the_exit_code_of_the_processes(self):
        process = self.start("launch", "-n", "2", "train", "missing.yaml")
        _, error = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 2)
        self.assertIn("missing.yaml", error)

    def test_refuses_to_launch_nothing(self):
        process = self.start("launch", "-n", "2")
        _, error = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 2)
        self.assertIn("nothing to launch", error)

    def test_leaves_no_orphan_when_it_is_killed(self):
        launcher, children = self.start_long()
        launcher.send_signal(signal.SIGKILL)
        for child in children:
            self.assertTrue(wait_until(lambda: gone(child)), f"process {child} lives on")

    def test_passes_signals_on(self):
        launcher, children = self.start_long()
        launcher.send_signal(signal.SIGTERM)
        self.assertEqual(launcher.wait(timeout=30), 3)
        for child in children:
            self.assertTrue(gone(child))


if __name__ == "__main__":
    unittest.main()
