"""Compares one recipe on one rank, on 32 threads and on 4 processes of 8 threads; tests plans of
meshes."""

import pathlib
import unittest

from strata_program import ProgramTest

ROOT = pathlib.Path(__file__).resolve().parents[2]
RECIPE = str(ROOT / "recipes/mesh.yaml")
DATA = ["--set", f"data.train={ROOT / 'README.md'}", "--set", "mesh.threads=1"]
ONE_RANK = ["--set", "mesh.pp=1", "--set", "mesh.dp=1", "--set", "mesh.tp=1", "--set", "mesh.zero=0"]


class Mesh(ProgramTest):
    def train_losses(self, *arguments, launch=()):
        self.out = self.succeed(*launch, "train", RECIPE, *DATA, "--metrics", "m.jsonl", *arguments)
        losses = [step["loss"] for step in self.metrics("m.jsonl")]
        self.peaks = self.metrics("m.jsonl")[-1]["peak_bytes"]
        (self.folder / "m.jsonl").unlink()
        return losses

    def peak_lines(self):
        return [line for line in self.out.splitlines() if "peak" in line]

    def test_32_ranks_as_threads_or_processes_match_one_rank(self):
        one = self.train_losses(*ONE_RANK)
        self.assertEqual([line.split()[:3] for line in self.peak_lines()], [["rank", "0", "peak"]])
        threads = self.train_losses()
        # One line per stage, with the largest of its ranks.
        self.assertEqual([line.split("   ")[0] for line in self.peak_lines()],
                         ["ranks 0 to 7 (pp 0/4)", "ranks 8 to 15 (pp 1/4)", "ranks 16 to 23 (pp 2/4)",
                          "ranks 24 to 31 (pp 3/4)"])
        for stage, line in enumerate(self.peak_lines()):
            largest = max(self.peaks[8 * stage:8 * stage + 8]) / 2**20
            self.assertIn(f"largest peak {largest:.2f} MiB" if largest >= 1 else f"largest peak {1024 * largest:.2f} KiB",
                          line)
        processes = self.train_losses(launch=("launch", "-n", "4", "--"))
        self.assertIn("network  sockets: all processes are on this machine\n", self.out)
        self.assertEqual(len(one), 50)
        self.assertEqual(threads, processes)  # every bit
        for step, (a, b) in enumerate(zip(one, threads), 1):
            self.assertLess(abs(a - b), 1e-5 * a, f"step {step}: {a} on one rank, {b} on 32")

    def test_verify_bounds_differences_of_replicas_and_slices(self):
        out = self.succeed("verify", RECIPE, *DATA)
        self.assertIn("of each layer's largest gradient", out)

    def test_size_reproduces_published_bytes_of_zero(self):
        # Rajbhandari et al. 2020 (arXiv 1910.02054), figure 1.
        out = self.succeed("size", "parameters", "7.5B", "--shard-ranks", "64")
        for gigabytes in ("120.0", "31.4", "16.6", "1.9"):
            self.assertIn(f" {gigabytes} ", out)

    def test_plan_searches_mesh_and_explains_choice(self):
        out = self.succeed("plan", RECIPE, *DATA, "--set", "mesh.auto=true", "--set",
                           "mesh.ranks=8", "--estimate")
        self.assertIn("8 ranks", out)
        # The search and the plan use different rates.
        self.assertIn("compared by assumed rates", out)
        self.assertIn("fastest that fits", out)
        self.assertIn("x as slow: bubble".replace("x", "\u00d7"), out)

    def test_refuses_illegal_mesh_with_nearest_legal_mesh(self):
        self.refuse("train", RECIPE, *DATA, "--set", "mesh.tp=3", says="mesh.tp")
        self.refuse("launch", "-n", "3", "--", "train", RECIPE, *DATA, says="processes")


if __name__ == "__main__":
    unittest.main()
