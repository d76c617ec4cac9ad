"""Tests that the comparison with published model sizes runs, and that its figures have the expected
order."""

import importlib.util
import pathlib
import unittest

from strata_program import PROGRAM

RUN = pathlib.Path(__file__).resolve().parents[2] / "bench/published_sizes/run.py"


def load():
    spec = importlib.util.spec_from_file_location("published_sizes", RUN)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.PROGRAM = pathlib.Path(PROGRAM)
    return module


class PublishedSizes(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.bench = load()
        cls.rows = {row.name: cls.bench.compared(row) for row in cls.bench.TABLE}

    def test_strata_holds_more_than_every_published_size_on_its_machine(self):
        for name, row in self.rows.items():
            published = row["published"]["parameters"]
            self.assertGreater(row["strata"]["parameters"], published, name)
            self.assertGreaterEqual(row["strata_without_clipping"]["parameters"], row["strata"]["parameters"], name)

    def test_the_ledger_grants_each_peer_what_it_has_published(self):
        for name, row in self.rows.items():
            self.assertGreaterEqual(row["reproduced"]["parameters"], row["published"]["parameters"], name)

    def test_in_memory_is_limited_by_sixteen_bytes_a_parameter(self):
        # 32 GiB at 16 bytes; activations of four samples take the rest.
        megatron = self.rows["Megatron-LM"]["reproduced"]
        self.assertLess(megatron["parameters"], 2**35 / 16)
        self.assertGreater(megatron["parameters"], 0.85 * 2**35 / 16)

    def test_a_window_is_limited_by_what_the_host_holds_of_a_parameter(self):
        host = 90e9 - 6 * 2**30  # without what is kept for the system and the process
        row = self.rows["STRONGHOLD"]
        self.assertAlmostEqual(row["reproduced"]["parameters"] / (host / 16), 1, delta=0.02)
        # Without clipping gradients are consumed at once: 12 bytes.
        self.assertGreater(row["strata_without_clipping"]["parameters"], 1.3 * row["reproduced"]["parameters"])

    def test_weights_of_two_bytes_fill_a_device_where_all_else_is_on_the_host(self):
        offloaded = self.rows["ZeRO-Offload (its paper)"]["reproduced"]
        self.assertLess(offloaded["parameters"], 2**35 / 2)
        self.assertGreater(offloaded["parameters"], 13e9)

    def test_layers_are_blocks_as_in_the_published_numbers(self):
        for name, row in self.rows.items():
            width = row["width"]
            for kind in ("reproduced", "strata", "strata_without_clipping"):
                blocks, parameters = row[kind]["layers"], row[kind]["parameters"]
                # embedding, positions and last norm
                beside = parameters - blocks * (12 * width**2 + 13 * width)
                self.assertEqual(beside, (50304 + 1024 + 2) * width, (name, kind))

    def test_the_table_has_a_line_a_system(self):
        text = self.bench.table(list(self.rows.values()))
        self.assertEqual(len(text.splitlines()), 2 + len(self.rows))
        self.assertIn("| STRONGHOLD | 100 blocks, 5.14 G |", text)


if __name__ == "__main__":
    unittest.main()
