"""Tests training with states on a disk: the same bits as in memory; resuming from that disk after a
stop, a kill at any moment or a fault; and settings that are refused before a run."""

import hashlib
import json
import os
import pathlib
import random
import resource
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

from strata_program import PROGRAM, ProgramTest, free_ports, text_of

RECIPE = """\
model:  {kind: gpt, layers: 4, width: 32, heads: 2, vocab: 256, context: 32, dropout: 0.1, tie: false}
data:   {train: text.txt, tokenizer: bytes, validation_fraction: 0.1}
train:  {steps: 12, mini_batch: 8, micro_batch: 4, warmup: 4, clip: 0.5, seed: 1,
         optimizer: {kind: adamw, learning_rate: 1e-3}}
mesh:   {threads: 1}
memory: {recompute: cheap, disk: {path: disk}}
"""
PLACEMENTS = {
    "all": ["memory.weights=disk", "memory.gradients=host", "memory.states=disk"],
    "states": ["memory.weights=host", "memory.gradients=host", "memory.states=disk"],
    "gradients": ["memory.weights=disk", "memory.gradients=disk", "memory.states=disk"],
    "zero_offload": ["memory.weights=device", "memory.gradients=host", "memory.states=disk"],
}
# The work of a step does not depend on the length of the run; no run ends before it is stopped or
# killed.
ENDLESS = ("train.steps=100000", "train.decay=constant")
KILLS = int(os.environ.get("STRATA_KILLS", "8"))  # 50 take minutes


def settings(*fields):
    return [word for field in fields for word in ("--set", field)]


def tensors(folder):
    """SHA-256 of every tensor in a checkpoint, independent of its files."""
    found = {}
    for path in folder.glob("*.safetensors"):
        content = path.read_bytes()
        length = int.from_bytes(content[:8], "little")
        for name, entry in json.loads(content[8:8 + length]).items():
            if name != "__metadata__":
                begin, end = (8 + length + offset for offset in entry["data_offsets"])
                found[name] = hashlib.sha256(content[begin:end]).hexdigest()
    return found


class Disk(ProgramTest):
    def setUp(self):
        super().setUp()
        kind = subprocess.run(["stat", "-f", "-c", "%T", str(self.folder)], capture_output=True,
                              text=True).stdout.strip()
        if kind in ("tmpfs", "ramfs"):  # the folder must be on a disk
            place = tempfile.TemporaryDirectory(dir="/var/tmp")
            self.addCleanup(place.cleanup)
            shutil.copy(self.folder / "text.txt", place.name)
            self.folder = pathlib.Path(place.name)
        (self.folder / "recipe.yaml").write_text(RECIPE)

    def train(self, name, *fields, more=()):
        self.succeed("train", "recipe.yaml", "--metrics", f"{name}.jsonl", *more, *settings(*fields))
        return self.losses(f"{name}.jsonl")

    def forget(self, folder="disk"):
        shutil.rmtree(self.folder / folder, ignore_errors=True)

    def last(self, folder):
        return sorted((self.folder / folder).glob("step-????????"))[-1]

    def test_losses_and_checkpoints_equal_training_in_memory(self):
        for precision in ("fp32", "bf16"):
            same = (f"train.precision={precision}",)
            expected = self.train("memory", *same, f"train.checkpoint_folder=memory-{precision}")
            for name, placement in PLACEMENTS.items():
                with self.subTest(precision=precision, placement=name):
                    self.forget()
                    folder = f"{name}-{precision}"
                    self.assertEqual(
                        self.train(name, *same, *placement, f"train.checkpoint_folder={folder}"),
                        expected)
                    self.assertEqual(tensors(self.last(folder)),
                                     tensors(self.last(f"memory-{precision}")))
                    disk = self.metrics(f"{name}.jsonl")[-1]["offload"]["disk"]
                    self.assertGreater(disk["bytes_written"], 0)
                    self.assertGreater(disk["bytes_read"], 0)

    def test_checkpoint_resumes_on_every_mesh(self):
        mesh = ("mesh.pp=2", "mesh.dp=2", "mesh.zero=3")
        whole = self.train("whole", *mesh)
        self.train("disk", *mesh, *PLACEMENTS["all"], "train.checkpoint_folder=saved",
                   "train.checkpoint_every=5", "train.keep_checkpoints=0")
        saved = str(self.folder / "saved" / "step-00000005")
        self.assertEqual(self.train("memory", *mesh, more=("--resume", saved)), whole[5:])
        self.forget()  # and resumes on a disk
        self.assertEqual(
            self.train("again", *mesh, *PLACEMENTS["states"], more=("--resume", saved)), whole[5:])

    def test_stop_prints_command_to_resume_from_disk(self):
        process = self.start("train", "recipe.yaml", "--metrics", "part.jsonl",
                             *settings(*ENDLESS, *PLACEMENTS["all"], "memory.disk.commit_every=7"))
        self.await_steps("part.jsonl")
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 0, err)
        self.assertIn("--resume disk", out)
        steps = (f"train.steps={len(self.losses('part.jsonl')) + 20}", "train.decay=constant")
        whole = self.train("whole", *steps)
        # Model, tokenizer and metrics resume as well.
        [line] = [line for line in out.splitlines() if line.startswith("resume ")]
        self.succeed(*shlex.split(line)[2:], *settings(*steps))
        self.assertEqual(self.losses("part.jsonl"), whole)

    def test_removed_file_ends_run(self):
        data = "disk/rank-00000/chunks.data"
        harms = {"removed": lambda path: path.unlink(),
                 "replaced": lambda path: (path.unlink(), path.write_bytes(b"")),
                 "with its folder": lambda path: shutil.rmtree(path.parent.parent)}
        for name, harm in harms.items():
            # The next commit detects it, or the one at the end.
            for every in (1, 100000):
                with self.subTest(name, every=every):
                    self.forget()
                    (self.folder / "m.jsonl").unlink(missing_ok=True)
                    process = self.start("train", "recipe.yaml", "--metrics", "m.jsonl", *settings(
                        *ENDLESS, *PLACEMENTS["all"], f"memory.disk.commit_every={every}"))
                    self.await_steps("m.jsonl")
                    harm(self.folder / data)
                    if every > 1:
                        process.send_signal(signal.SIGINT)
                    out, err = process.communicate(timeout=60)
                    self.assertEqual(process.returncode, 3, out + err)
                    self.assertIn("rank-00000", err)
                    self.assertNotIn("--resume", out + err)

    def test_refuses_folder_name_that_is_not_utf8(self):
        """Bytes that are not UTF-8 in the path: messages show it and runs resume from it."""
        place = [word.encode() for word in settings(*ENDLESS, *PLACEMENTS["all"])]
        for folder in (b"memory.disk.path=dis\xffk", b"train.checkpoint_folder=sav\xfeed"):
            with self.subTest(folder):
                (self.folder / "m.jsonl").unlink(missing_ok=True)
                more = place if b"disk" in folder else [word.encode() for word in settings(*ENDLESS)]
                process = subprocess.Popen(
                    [PROGRAM.encode(), b"train", b"recipe.yaml", b"--metrics", b"m.jsonl", *more, b"--set", folder],
                    cwd=self.folder, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
                self.addCleanup(process.kill)
                self.await_steps("m.jsonl")
                process.send_signal(signal.SIGINT)
                out, err = process.communicate(timeout=60)
                self.assertEqual(process.returncode, 0, err)
                [line] = [line for line in out.splitlines() if line.startswith(b"resume ")]
                done = len(self.losses("m.jsonl"))
                again = subprocess.run(line.split(None, 1)[1] + b" --set train.steps=%d" % (done + 2), shell=True,
                                       cwd=self.folder, env=self.environment, capture_output=True, timeout=60)
                self.assertEqual(again.returncode, 0, again.stderr)
                self.assertNotIn(b"changed  memory", again.stdout)
                self.assertNotIn(b"changed  train.checkpoint", again.stdout)
                self.assertEqual(len(self.losses("m.jsonl")), done + 2)

    def lines(self, name):
        return text_of(self.folder / name).count("\n")

    def kill_and_resume(self, kills, mesh, placement, seed):
        """Kills a run repeatedly, then lets it end: its losses are those of an uninterrupted
        run."""
        fields, dice = (*mesh, *placement), random.Random(seed)
        self.forget()
        (self.folder / "killed.jsonl").unlink(missing_ok=True)

        def command(*length):
            committed = len(list((self.folder / "disk").glob("rank-*/manifest.json")))
            more = ["--resume", "disk"] if committed == self.ranks else []
            return ["train", "recipe.yaml", "--metrics", "killed.jsonl", *more, *settings(*fields, *length)]

        for kill in range(kills):
            process = self.start(*command(*ENDLESS))
            # Some kills come before the first line, most within two steps after one.
            steps = self.lines("killed.jsonl") + (1 if kill % 4 else 0)
            deadline = time.time() + 60
            while (time.time() < deadline and process.poll() is None and
                   self.lines("killed.jsonl") < steps):
                time.sleep(0.0005)
            time.sleep(dice.random() * (0.03 if kill % 4 else 0.3))
            process.kill()
            err = process.communicate()[1]
            # it had neither ended nor failed
            self.assertEqual(process.returncode, -signal.SIGKILL, err)
        length = (f"train.steps={self.lines('killed.jsonl') + 20}", "train.decay=constant")
        self.succeed(*command(*length))
        self.assertEqual(self.losses("killed.jsonl"), self.train("whole", *mesh, *length))

    def test_kill_at_any_moment_changes_no_bit(self):
        cases = [(1, (), "all"), (2, ("mesh.pp=2",), "gradients"),
                 (4, ("mesh.pp=2", "mesh.dp=2", "mesh.zero=1"), "states")]
        for self.ranks, mesh, name in cases:
            with self.subTest(mesh=mesh, placement=name):
                self.kill_and_resume((KILLS + 1) // 2, mesh, PLACEMENTS[name], self.ranks)

    def test_metrics_list_each_step_once_if_one_disk_lags_a_commit(self):
        """Two processes, each with its own disk: a crash came after only one had committed."""
        place = (*PLACEMENTS["states"], "mesh.pp=2")
        folders = [self.folder / name for name in ("a", "b")]
        for folder in folders:
            folder.mkdir()
            for name in ("recipe.yaml", "text.txt"):
                shutil.copy(self.folder / name, folder)

        def train(steps, *more):
            port = str(free_ports(1)[0])
            processes = [subprocess.Popen(
                [PROGRAM, "train", "recipe.yaml", "--metrics", "metrics.jsonl", *more,
                 *settings(*place, f"train.steps={steps}")], cwd=folder, text=True,
                stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                env={**self.environment, "RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": str(rank),
                     "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port})
                for rank, folder in enumerate(folders)]
            for process in processes:
                _, err = process.communicate(timeout=120)
                self.assertEqual(process.returncode, 0, err)

        train(1)  # a single commit, of which each machine sees only its own rank's
        train(2, "--resume", "disk")
        shutil.copytree(folders[1] / "disk", folders[1] / "behind")
        train(3, "--resume", "disk")
        shutil.rmtree(folders[1] / "disk")
        (folders[1] / "behind").rename(folders[1] / "disk")
        train(8, "--resume", "disk")
        records = [json.loads(line) for line in (folders[0] / "metrics.jsonl").read_text().splitlines()]
        self.assertEqual([record["step"] for record in records], list(range(1, 9)))

    def test_verify_does_not_change_disk(self):
        for name in ("gradients", "all"):
            fields = settings(*PLACEMENTS[name])
            self.succeed("verify", "recipe.yaml", *fields)
            self.assertFalse((self.folder / "disk").exists())
        self.train("run", *PLACEMENTS["all"], "train.steps=2")
        before = sorted(path.name for path in (self.folder / "disk").iterdir())
        self.succeed("verify", "recipe.yaml", *fields)
        self.assertEqual(sorted(path.name for path in (self.folder / "disk").iterdir()), before)

    def bytes_of(self, folder):
        return {str(path.relative_to(self.folder)): hashlib.sha256(path.read_bytes()).hexdigest()
                for path in (self.folder / folder).rglob("*") if path.is_file()}

    def test_evaluate_does_not_change_disk(self):
        self.train("run", *PLACEMENTS["all"], "train.checkpoint_folder=saved")
        before = self.bytes_of("disk")
        evaluate = ("evaluate", "saved", "--json", "found.json")
        self.succeed(*evaluate)
        found = (self.folder / "found.json").read_text()
        self.assertEqual(self.bytes_of("disk"), before)
        self.assertEqual([path.name for path in (self.folder / "disk").iterdir()], ["rank-00000"])
        # The run resumes from it.
        self.assertEqual(len(self.train("more", *PLACEMENTS["all"], "train.steps=14",
                                        more=("--resume", "disk"))), 2)
        # Nor is it created if it is missing, or elsewhere.
        self.forget()
        self.succeed(*evaluate)
        self.assertFalse((self.folder / "disk").exists())
        self.succeed(*evaluate, *settings("memory.disk.path=deep/elsewhere"))
        self.assertFalse((self.folder / "deep").exists())
        self.assertEqual((self.folder / "found.json").read_text(), found)

    def test_run_without_steps_commits_nothing(self):
        self.train("run", "train.checkpoint_folder=saved")
        self.train("none", *PLACEMENTS["all"], "train.steps=12", more=("--resume", "saved"))
        self.assertFalse((self.folder / "disk/rank-00000/manifest.json").exists())

    def test_refuses_impossible_settings_before_first_step(self):
        place = PLACEMENTS["all"]
        refuse = lambda *fields, says, code=2: self.refuse(
            "train", "recipe.yaml", *settings(*place, *fields), says=says, code=code)
        refuse("memory.disk.path=", says="memory.disk.path")
        refuse("memory.states=host", says="memory.states")
        refuse("memory.gradients=disk", "memory.weights=auto", "memory.states=host", says="memory.gradients")
        refuse("memory.disk.bytes=100KiB", says="disk")
        if os.path.isdir("/dev/shm"):
            refuse("memory.disk.path=/dev/shm/strata-disk-test", says=["memory.disk.path", "memory"])
        refuse("memory.disk.path=recipe.yaml", says="memory.disk.path")
        refuse("memory.disk.path=/proc/strata", says="memory.disk.path")
        self.assertFalse((self.folder / "disk").exists())
        # A limit on file sizes, as on a file system with one.
        limited = subprocess.run(
            [PROGRAM, "train", "recipe.yaml", *settings(*place)], cwd=self.folder, text=True,
            env=self.environment, capture_output=True, timeout=300,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, 1 << 16)))
        self.assertEqual(limited.returncode, 2, limited.stderr)
        self.assertIn("ulimit -f", limited.stderr)

    def train_in_less_memory(self, placement, clip):
        """Weights and states are four times the memory that the kernel allows, and all gradients exceed it."""
        layers, width, limit = 112, 384, 540 << 20
        model = [f"model.layers={layers}", f"model.width={width}", "model.heads=6", "model.dropout=0",
                 "train.steps=2", "train.mini_batch=1", "train.micro_batch=1", f"train.clip={clip}",
                 "data.validation_fraction=0"]
        # weights and both moments of the blocks' matrices exceed the limit, and so do the gradients
        weights = 12 * layers * width * width
        self.assertGreater(12 * weights, 4 * limit)
        self.assertGreater(4 * weights, limit)

        def confine():
            resource.setrlimit(resource.RLIMIT_STACK, (1 << 20, 1 << 20))  # of every thread, too
            resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))

        def train(name, *fields, preexec=None):
            return subprocess.run(
                [PROGRAM, "train", "recipe.yaml", "--metrics", f"{name}.jsonl",
                 *settings(*model, *fields)], cwd=self.folder, text=True, env=self.environment,
                capture_output=True, timeout=600, preexec_fn=preexec)

        in_memory = train("memory")
        self.assertEqual(in_memory.returncode, 0, in_memory.stderr)
        self.assertNotEqual(train("refused", preexec=confine).returncode, 0)
        on_disk = train("disk", *PLACEMENTS[placement], "memory.window=2", "memory.host=110MiB",
                        preexec=confine)
        self.assertEqual(on_disk.returncode, 0, on_disk.stderr)
        self.assertEqual(self.losses("disk.jsonl"), self.losses("memory.jsonl"))
        return train, confine

    def test_trains_states_of_four_times_memory_limit(self):
        self.train_in_less_memory("all", clip=0)

    def test_trains_gradients_larger_than_memory_limit(self):
        train, confine = self.train_in_less_memory("gradients", clip=0.5)
        self.forget()
        on_host = train("host", *PLACEMENTS["all"], "memory.window=2", preexec=confine)
        self.assertNotEqual(on_host.returncode, 0)
        self.assertNotIn("earlier run", on_host.stderr)

    def test_reports_limit_on_file_size(self):
        """The limit takes effect while the run writes; the run cannot resume under it."""
        place = settings(*PLACEMENTS["all"])
        process = self.start("train", "recipe.yaml", *place, *settings(*ENDLESS), "--metrics", "m.jsonl")
        deadline = time.time() + 60
        while time.time() < deadline and self.lines("m.jsonl") < 3:  # commits follow their steps
            time.sleep(0.001)
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
        out, err = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 3, out + err)
        self.assertIn("ulimit -f", err)
        resume = ("train", "recipe.yaml", *place, "--resume", "disk", "--metrics", "m.jsonl")
        done = len(self.losses("m.jsonl")) + 20
        length = ("--set", f"train.steps={done}", "--set", "train.decay=constant")
        limited = subprocess.run([PROGRAM, *resume, *length], cwd=self.folder, env=self.environment, text=True,
                                 capture_output=True, timeout=60,
                                 preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (65536, 65536)))
        self.assertEqual(limited.returncode, 2, limited.stderr)
        self.assertIn("ulimit -f", limited.stderr)
        self.succeed(*resume, *length)
        self.succeed("train", "recipe.yaml", "--metrics", "whole.jsonl", *length)
        self.assertEqual(self.losses("m.jsonl"), self.losses("whole.jsonl"))

    def test_refuses_folder_of_another_run(self):
        place = PLACEMENTS["all"]
        first = self.start("train", "recipe.yaml", "--metrics", "first.jsonl",
                           *settings(*place, "train.steps=100000"))
        self.await_steps("first.jsonl")
        try:
            self.refuse("train", "recipe.yaml", *settings(*place), says=["another run", "memory.disk.path"])
            self.refuse("train", "recipe.yaml", "--resume", "disk", *settings(*place),
                        says=["another run", "memory.disk.path"])
        finally:
            first.kill()
            first.communicate()
        self.refuse("train", "recipe.yaml", *settings(*place), says="earlier run")
        resume = ("train", "recipe.yaml", "--resume", "disk")
        self.refuse(*resume, *settings(*place, "model.width=64"), says="model.width")
        self.refuse(*resume, *settings(*place, "memory.disk.path=elsewhere"), says="is resumed where it lies")
        self.refuse(*resume, *settings(*place, "mesh.pp=2"), says="mesh")
        self.refuse(*resume, *settings(*place, "mesh.dp=2"), says="mesh")
        self.refuse(*resume, *settings(*place, "memory.weights=host"), says="memory.weights")

    def test_detects_flipped_bit_on_disk(self):
        self.train("whole", *PLACEMENTS["all"], "train.steps=2")
        data = self.folder / "disk" / "rank-00000" / "chunks.data"
        with open(data, "r+b") as file:
            for offset in range(100, data.stat().st_size, 4096):  # in every slot
                file.seek(offset)
                byte = file.read(1)
                file.seek(offset)
                file.write(bytes([byte[0] ^ 1]))
        self.refuse("train", "recipe.yaml", "--resume", "disk",
                    *settings(*PLACEMENTS["all"], "train.steps=4"), says=["checksum", "chunks.data"],
                    code=3)


if __name__ == "__main__":
    unittest.main()
