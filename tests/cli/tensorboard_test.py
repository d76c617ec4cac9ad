"""Tests that event files contain the numbers of the metrics, and that TensorBoard reads them."""

import shutil
import struct
import unittest

from strata_program import ProgramTest

try:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
except ImportError:
    EventAccumulator = None

TAGS = ["loss", "gradient_norm", "learning_rate", "tokens_per_second", "step_seconds", "bubble"]


class Tensorboard(ProgramTest):
    def train(self, *arguments):
        self.succeed("train", "recipe.yaml", "--metrics", "m.jsonl",
                     "--set", "train.tensorboard=events", "--set", "train.validate_every=3",
                     *arguments)

    def test_writes_one_record_per_step(self):
        self.train()
        [path] = (self.folder / "events").iterdir()
        self.assertRegex(path.name, r"^events\.out\.tfevents\.\d{10}\..+\.\d+$")
        self.assertEqual(self.beginning_and_steps(path), (1, 8))

    def beginning_and_steps(self, path):
        """The step from which on a reader discards other files, and the number of steps."""
        data, records = path.read_bytes(), []
        while data:
            [length] = struct.unpack("<Q", data[:8])
            self.assertLessEqual(length + 16, len(data))
            records.append(data[12:12 + length])
            data = data[length + 16:]
        # Version; start of the session: field 1, a double, and field 2, the step.
        self.assertEqual(records[1][9], 0x10)
        return records[1][10], len(records) - 2

    def test_resumed_run_replaces_later_steps(self):
        saving = ["--set", "train.checkpoint_folder=saved", "--set", "train.checkpoint_every=6"]
        self.train(*saving)
        shutil.rmtree(self.folder / "saved/step-00000008")
        self.train(*saving, "--resume", "saved")
        files = map(self.beginning_and_steps, (self.folder / "events").iterdir())
        self.assertEqual(sorted(files), [(1, 8), (7, 2)])

    def test_writes_no_file_without_option(self):
        self.succeed("train", "recipe.yaml")
        self.assertEqual([path for path in self.folder.rglob("*tfevents*")], [])

    @unittest.skipIf(EventAccumulator is None, "the package tensorboard is not installed")
    def test_tensorboard_reads_values_of_metrics(self):
        saving = ["--set", "train.checkpoint_folder=saved", "--set", "train.checkpoint_every=6"]
        self.train(*saving)
        # As if it had been killed in step 8: steps 7 and 8 run again, and count once.
        shutil.rmtree(self.folder / "saved/step-00000008")
        self.train(*saving, "--resume", "saved")
        events = EventAccumulator(str(self.folder / "events"))
        events.Reload()
        steps = self.metrics("m.jsonl")
        self.assertEqual(len(steps), 8)
        for tag in TAGS:
            scalars = events.Scalars(tag)
            self.assertEqual([scalar.step for scalar in scalars], list(range(1, 9)), tag)
            for scalar, step in zip(scalars, steps):
                self.assertEqual(scalar.value, struct.unpack("f", struct.pack("f", step[tag]))[0])
        self.assertEqual([scalar.value for scalar in events.Scalars("peak_bytes")],
                         [max(step["peak_bytes"]) for step in steps])
        self.assertEqual([scalar.step for scalar in events.Scalars("validation_loss")], [3, 6])


if __name__ == "__main__":
    unittest.main(verbosity=2)  # prints what was skipped, and why
