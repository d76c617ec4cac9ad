"""Tests the process memory that `plan` predicts: random recipes with layers on the host or on a
disk need at most a tenth less, and finish under a kernel limit of exactly that."""

import json
import os
import pathlib
import random
import resource
import shutil
import subprocess
import tempfile
import unittest

from strata_program import PROGRAM, ProgramTest

RECIPES = int(os.environ.get("STRATA_RECIPES", "10"))  # random; each run draws others
PLACEMENTS = (("device", "host", "host"), ("host", "host", "host"), ("device", "host", "disk"), ("host", "host", "disk"),
              ("disk", "host", "disk"))


def recipe(dice):
    weights, gradients, states = dice.choice(PLACEMENTS)
    width = dice.choice((384, 512, 576))
    # A stage of fewer layers than a disk has staging buffers would not use all of them; its plan
    # would predict more.
    pp, dp = dice.choice(((1, 1), (1, 1), (1, 1), (2, 1), (1, 2), (2, 2), (1, 4)))
    if weights == "disk":
        dp = 1  # replicas reserve parts of weights for late readers, which they seldom touch
    zero = dice.choice((1, 3)) if dp > 1 else 0
    return f"""\
model:  {{kind: gpt, layers: {dice.choice((6, 8))}, width: {width}, heads: {width // 64}, vocab: 256, context: 32, tie: false}}
data:   {{train: text.txt, tokenizer: bytes, validation_fraction: 0}}
train:  {{steps: 3, mini_batch: {4 * dp}, micro_batch: {dice.choice((1, 2))}, clip: {dice.choice((0, 1))},
         precision: {dice.choice(("fp32", "fp32", "bf16", "fp16"))}}}
mesh:   {{pp: {pp}, dp: {dp}, zero: {zero}, threads: {dice.choice((1, 1, 2))}}}
memory: {{recompute: {dice.choice(("none", "cheap", "full"))}, window: {0 if weights == "device" else 2},
         weights: {weights}, gradients: {gradients}, states: {states}{", disk: {path: disk}" if states == "disk" else ""}}}
"""


class MemoryGroup:
    """A cgroup that limits a process to so many bytes; `folder` is None if this user may not make
    one."""

    def __init__(self, limit):
        self.folder = None
        for root, field in (("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")):
            folder = pathlib.Path(root) / f"strata-test-{os.getpid()}"
            try:
                folder.mkdir()
            except OSError:
                continue
            try:
                (folder / field).write_text(str(limit))
                self.folder = folder
                return
            except OSError:
                folder.rmdir()

    def enter(self):
        if self.folder:
            (self.folder / "cgroup.procs").write_text(str(os.getpid()))

    def remove(self):
        if self.folder:
            self.folder.rmdir()


class Process(ProgramTest):
    def setUp(self):
        super().setUp()
        kind = subprocess.run(["stat", "-f", "-c", "%T", str(self.folder)], capture_output=True, text=True).stdout.strip()
        if kind in ("tmpfs", "ramfs"):  # the folder must be on a disk
            place = tempfile.TemporaryDirectory(dir="/var/tmp")
            self.addCleanup(place.cleanup)
            shutil.copy(self.folder / "text.txt", place.name)
            self.folder = pathlib.Path(place.name)

    def planned(self):
        text = self.succeed("plan", "recipe.yaml", "--estimate", "--json", "plan.json")
        process = json.loads((self.folder / "plan.json").read_text())["process"]
        self.assertIn("process    ", text)
        self.assertEqual(process["bytes"],
                         process["account_bytes"] + process["thread_bytes"] + process["program_bytes"])
        return process

    def train(self, limit):
        """The largest resident set of the process, including the first measurements of layers."""
        group = MemoryGroup(limit)

        def confine():
            group.enter()
            resource.setrlimit(resource.RLIMIT_STACK, (1 << 20, 1 << 20))  # of every thread, too
            resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))

        environment = {**self.environment, "XDG_CACHE_HOME": str(self.folder / "cache")}
        try:
            with open(self.folder / "out.txt", "w+") as out:
                process = subprocess.Popen([PROGRAM, "train", "recipe.yaml"], cwd=self.folder, env=environment,
                                           stdout=out, stderr=subprocess.STDOUT, preexec_fn=confine)
                _, status, usage = os.wait4(process.pid, 0)
                process.returncode = os.waitstatus_to_exitcode(status)
                out.seek(0)
                self.assertEqual(process.returncode, 0, out.read())
        finally:
            group.remove()
        return usage.ru_maxrss * 1024

    def test_random_recipes_fit_planned_memory_limit(self):
        shares = []
        for seed in range(RECIPES):
            text = recipe(random.Random(seed) if RECIPES == 10 else random.Random())
            with self.subTest(seed=seed, recipe=text):
                (self.folder / "recipe.yaml").write_text(text)
                process = self.planned()
                measured = self.train(process["bytes"])
                shares.append(measured / process["bytes"])
                self.assertLess(abs(shares[-1] - 1), 0.1, process)
            for folder in ("disk", "cache"):
                shutil.rmtree(self.folder / folder, ignore_errors=True)
        print("measured / planned:", " ".join(f"{share:.3f}" for share in shares))

    def test_ranks_of_tiny_model_on_disk_use_little_uncounted_memory(self):
        (self.folder / "recipe.yaml").write_text("""\
model:  {kind: gpt, layers: 2, width: 32, heads: 2, vocab: 256, context: 32}
data:   {train: text.txt, tokenizer: bytes, validation_fraction: 0}
train:  {steps: 2, mini_batch: 8, micro_batch: 1}
mesh:   {dp: 8, zero: 1, threads: 1}
memory: {weights: host, gradients: host, states: disk, disk: {path: disk}}
""")
        process = self.planned()
        self.assertLess(self.train(process["bytes"] + (16 << 20)), process["bytes"] + (16 << 20))


if __name__ == "__main__":
    unittest.main()
