"""Tests strata launch: several processes of one machine, one exit code, no orphans."""

import os
import re
import shlex
import shutil
import signal
import subprocess
import time
import unittest

from strata_program import PROGRAM, ProgramTest, size_of


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


def wait_until(condition, seconds=60):
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
        self.assertTrue(wait_until(lambda: len(children_of(launcher.pid)) == 2))
        return launcher, children_of(launcher.pid)

    def test_runs_verb_in_every_process(self):
        process = self.start("launch", "-n", "3", "options")
        out, _ = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 0)
        self.assertEqual(out.count("train.mini_batch"), 3)

    def test_returns_exit_code_of_processes(self):
        process = self.start("launch", "-n", "2", "train", "missing.yaml")
        _, error = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 2)
        self.assertIn("missing.yaml", error)

    def test_reports_common_error_once(self):
        for arguments in (["missing.yaml"], ["recipe.yaml", "--set", "mesh.pp=9"], ["recipe.yaml"]):
            with self.subTest(arguments):
                process = self.start("launch", "-n", "3", "train", *arguments)
                _, error = process.communicate(timeout=60)
                self.assertEqual(process.returncode, 2, error)
                self.assertEqual(sum(error.count(f"[{folder}.") for folder in ("run", "train", "plan", "comm")), 1, error)
                self.assertNotIn("torchrun", error)

    def test_help_lists_launched_verbs(self):
        self.assertIn("VERB", self.succeed("launch", "--help"))

    def test_refuses_missing_verb(self):
        process = self.start("launch", "-n", "2")
        _, error = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 2)
        self.assertIn("nothing to launch", error)

    def test_killed_launcher_leaves_no_orphan(self):
        launcher, children = self.start_long()
        launcher.send_signal(signal.SIGKILL)
        for child in children:
            self.assertTrue(wait_until(lambda: gone(child)), f"process {child} lives on")

    def secrets_of(self, children):
        def environment(child):
            with open(f"/proc/{child}/environ") as file:
                return dict(entry.split("=", 1) for entry in file.read().split("\0") if "=" in entry)
        # A child has the environment of the program once exec() has run.
        self.assertTrue(wait_until(lambda: all("WORLD_SIZE" in environment(c) for c in children)))
        return {environment(child).get("STRATA_SECRET") for child in children}

    def test_creates_secret_for_its_processes(self):
        found = []
        for _ in range(2):
            launcher, children = self.start_long()
            found.append(self.secrets_of(children))
            self.assertEqual(len(found[-1]), 1)
            self.assertRegex(*found[-1], "^[0-9a-f]{64}$")
            launcher.kill()
        self.assertNotEqual(*found)

    def test_keeps_secret_of_environment(self):
        self.environment["STRATA_SECRET"] = "a secret that the test has set"
        _, children = self.start_long()
        self.assertEqual(self.secrets_of(children), {"a secret that the test has set"})

    def test_refuses_secret_readable_by_others(self):
        (self.folder / "secret").write_text("0123456789abcdef0123456789abcdef")
        (self.folder / "secret").chmod(0o644)
        self.environment["STRATA_SECRET_FILE"] = str(self.folder / "secret")
        process = self.start(*self.LONG)
        _, error = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 2, error)
        self.assertIn("chmod 600", error)

    def test_forwards_signals(self):
        launcher, children = self.start_long()
        self.secrets_of(children)  # so exec() has run
        launcher.send_signal(signal.SIGHUP)  # which no run treats as a stop
        _, error = launcher.communicate(timeout=60)
        self.assertEqual(launcher.returncode, 3, error)
        self.assertRegex(error, r"(?m)^\[cli\.launch\] process [01]: a signal ended it\n  got +Hangup")
        for child in children:
            self.assertTrue(gone(child))

    def test_signal_to_any_process_saves_and_stops_run(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            with self.subTest(number):
                launcher = self.start(*self.LONG, "--metrics", "m.jsonl", "--set", "train.checkpoint_folder=saved")
                metrics = self.folder / "m.jsonl"  # with a line in it, all processes are in the run
                self.assertTrue(wait_until(lambda: size_of(metrics) > 0))
                os.kill(children_of(launcher.pid)[-1], number)
                out, err = launcher.communicate(timeout=60)
                self.assertEqual(launcher.returncode, 0, err)
                self.assertRegex(out, r"resume +\S+ launch -n 2 train recipe.yaml .*--resume saved/step-")
                [line] = [line for line in out.splitlines() if line.startswith("resume ")]
                steps = len(self.losses("m.jsonl")) + 2
                self.succeed(*shlex.split(line)[2:], "--set", f"train.steps={steps}")
                self.assertEqual(len(self.losses("m.jsonl")), steps)
                metrics.unlink()
                shutil.rmtree(self.folder / "saved")


class StandardInput(ProgramTest):
    """A recipe that can be read only once reaches every process whole."""

    def bash(self, command):
        done = subprocess.run(["bash", "-c", command.replace("strata", shlex.quote(PROGRAM), 1)], cwd=self.folder,
                              env=self.environment, capture_output=True, text=True, timeout=120)
        return done

    def test_every_process_reads_whole_recipe(self):
        recipe = (self.folder / "recipe.yaml").rename(self.folder / "moved.yaml").name
        for command in (f"cat {recipe} | strata launch -n 2 train - --metrics m.jsonl",
                        f"strata launch -n 2 -- train --set train.seed=1 - --metrics m.jsonl < {recipe}",
                        f"cat {recipe} | strata launch -n 2 train /dev/stdin --metrics m.jsonl",
                        f"strata launch -n 2 train <(cat {recipe}) --metrics m.jsonl",
                        f"cat {recipe} | strata launch -n 2 train --metrics=m.jsonl /proc/self/fd/0"):
            with self.subTest(command):
                done = self.bash(command)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertEqual(len(self.metrics("m.jsonl")), 8)
                (self.folder / "m.jsonl").unlink()

    def test_reports_error_in_recipe_once(self):
        done = self.bash("echo 'train: {stepz: 1}' | strata launch -n 3 train -")
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertEqual(done.stderr.count("standard input:1:"), 1, done.stderr)

    def test_does_not_take_option_value_for_recipe(self):
        """No process waits for a standard input that never ends."""
        process = self.start("launch", "-n", "2", "train", "recipe.yaml", "--metrics", "-", stdin=subprocess.PIPE)
        self.assertTrue(wait_until(lambda: process.poll() is not None))
        self.assertEqual(process.returncode, 0, process.stderr.read())
        process.stdin.close()


class Restart(ProgramTest):
    """A process is killed; the others end, and the launcher resumes without it."""

    RUN = ("train", "recipe.yaml", "--set", "mesh.pp=1", "--set", "mesh.zero=2", "--set",
           "train.steps=1500", "--set", "train.checkpoint_folder=saved", "--set",
           "train.checkpoint_every=50", "--set", "train.keep_checkpoints=0")

    def saved(self):
        return sorted(folder.name for folder in (self.folder / "saved").glob("step-????????"))

    def test_resumes_with_fewer_replicas_and_equal_losses(self):
        # The launcher itself reads the recipe again, too.
        with open(self.folder / "recipe.yaml") as recipe:
            launcher = self.start("launch", "-n", "2", "--restarts", "1", "--shrink", "--", "train", "-",
                                  *self.RUN[2:], "--set", "mesh.dp=2", "--metrics", "m.jsonl", stdin=recipe)
        self.assertTrue(wait_until(lambda: len(self.saved()) >= 2))
        os.kill(children_of(launcher.pid)[-1], signal.SIGKILL)
        _, err = launcher.communicate(timeout=120)
        self.assertEqual(launcher.returncode, 0, err)
        self.assertRegex(err, r"rank [01] \(dp [01]/2\): lost")
        self.assertIn("mesh.dp 1", err)
        resumed = re.search(r"mesh\.dp 1.*?step +(\d+)/1500", err, re.DOTALL)
        last = int(resumed[1]) - 1  # the step of the checkpoint that it resumed from
        self.assertEqual(last % 50, 0)
        losses = [step["loss_hex"] for step in self.metrics("m.jsonl")]
        self.assertEqual(len(losses), 1500)
        # As a run of the smaller mesh from that checkpoint.
        (self.folder / "saved").rename(self.folder / "before")
        self.succeed(*self.RUN, "--set", "train.checkpoint_every=0",
                     "--resume", f"before/step-{last:08}", "--metrics", "again.jsonl")
        again = [step["loss_hex"] for step in self.metrics("again.jsonl")]
        self.assertEqual(again, losses[last:])


if __name__ == "__main__":
    unittest.main()
