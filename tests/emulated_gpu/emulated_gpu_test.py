"""Tests training on emulated GPUs: runs the code of the CUDA backend on a machine without a GPU.

Compares the promises of docs/cuda.md bit by bit with one rank. A processor that reads a device's
memory gets a segmentation fault, and a copy without a wait for it is late.

With STRATA_REAL_GPU=1 the same tests run the program of a CUDA build on the GPUs of the machine.
"""

import json
import os
import pathlib
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/cli"))
from strata_program import ProgramTest  # pylint: disable=wrong-import-position

REAL = os.environ.get("STRATA_REAL_GPU") == "1"
ROUNDING = 1e-4 if REAL else 1e-6  # relative error of a loss: cuBLAS sums in another order

# Our kernels: each of ATen's operators would change memory protections on an emulated GPU.
SETTINGS = {"mesh.device": "cuda", "mesh.pp": 1, "train.steps": 3, "train.primitives": "own"}


def settings(**changes):
    values = {**SETTINGS, **{name.replace("__", "."): value for name, value in changes.items()}}
    return [word for name, value in values.items() for word in ("--set", f"{name}={value}")]


class EmulatedGpu(ProgramTest):
    def train_losses(self, *arguments, gpus=1, launch=(), **changes):
        """`loss_hex` of every step."""
        self.environment["STRATA_EMULATED_GPUS"] = str(gpus)
        self.succeed(*launch, "train", "recipe.yaml", *settings(**changes), "--metrics", "m.jsonl", *arguments)
        losses = [step["loss_hex"] for step in self.metrics("m.jsonl")]
        (self.folder / "m.jsonl").unlink()
        return losses

    def expect_equal(self, reference, *cases, **common):
        for case in cases:
            with self.subTest(**case):
                self.assertEqual(self.train_losses(**{**common, **case}), reference)

    def test_cuts_schedules_recompute_windows_and_recording_change_no_bit(self):
        one = self.train_losses()
        self.assertEqual(len(one), 3)
        self.expect_equal(
            one,
            {"mesh__pp": 2}, {"mesh__pp": 2, "mesh__schedule": "gpipe"},
            {"mesh__pp": 2, "mesh__schedule": "interleaved"}, {"mesh__pp": 4, "gpus": 2},
            {"memory__recompute": "none"}, {"memory__recompute": "full"},
            {"memory__recompute": "full", "memory__activations": "host"},
            {"train__graph": "on"}, {"train__graph": "off"}, {"train__log_lag": 1},
            {"memory__window": 2}, {"memory__window": 2, "train__graph": "on"})

    def test_tiers_change_no_bit(self):
        on_host = {"memory__weights": "host", "memory__gradients": "host", "memory__states": "host"}
        one = self.train_losses(train__steps=5)
        self.expect_equal(
            one, on_host, {**on_host, "memory__window": 1}, {**on_host, "memory__weights": "device"},
            {**on_host, "memory__window": 2, "mesh__pp": 2}, {**on_host, "memory__window": 2, "mesh__pp": 2, "gpus": 2},
            {**on_host, "memory__window": 2, "memory__recompute": "full", "memory__activations": "host"},
            {**on_host, "train__graph": "auto"}, {**on_host, "train__log_lag": 1}, train__steps=5)
        at_once = self.train_losses(train__clip=0)
        self.expect_equal(at_once, {**on_host, "memory__window": 2}, train__clip=0)
        two = self.train_losses(mesh__dp=2)
        self.expect_equal(
            two, {"mesh__zero": 1, "memory__weights": "device"}, {"mesh__zero": 3}, {"mesh__zero": 2, "gpus": 2},
            {"mesh__zero": 3, "gpus": 2, "memory__window": 2, "mesh__pp": 2}, mesh__dp=2, **on_host)
        hybrid = {"mesh__dp": 4, "mesh__shard_ranks": 2, "mesh__reduce": "each"}
        four = self.train_losses(mesh__zero=3, **hybrid)
        self.expect_equal(four, {"gpus": 2}, mesh__zero=3, **hybrid, **on_host)
        for precision in ("bf16", "fp16"):
            self.expect_equal(self.train_losses(train__precision=precision), on_host, train__precision=precision)

    def test_disk_changes_no_bit(self):
        place = tempfile.TemporaryDirectory(dir="/var/tmp")  # the folder must be on a disk
        self.addCleanup(place.cleanup)
        one = self.train_losses()
        placements = ({"memory__weights": "disk"}, {"memory__weights": "host"}, {"memory__weights": "device"})
        for i, placement in enumerate(placements):
            self.expect_equal(one, placement, memory__gradients="host", memory__states="disk",
                              memory__disk__path=f"{place.name}/{i}")

        two = self.train_losses(mesh__dp=2)
        for weights, zero in (("disk", 3), ("host", 1)):
            self.expect_equal(two, {"memory__weights": weights, "mesh__zero": zero}, mesh__dp=2,
                              memory__gradients="host", memory__states="disk",
                              memory__disk__path=f"{place.name}/{weights}")

    def test_traced_run_shows_gpu_work(self):
        for graph in ("off", "on"):
            self.succeed("train", "recipe.yaml", *settings(train__graph=graph, train__steps=5), "--trace", "trace.json",
                         "--report", "report.html")
            self.assertTrue(self.card(self.page("report.html"), "devices")["table"]["rows"])
            events = json.loads((self.folder / "trace.json").read_text())["traceEvents"]
            spans = [event for event in events if event.get("cat") == "device"]
            self.assertTrue(spans)
            self.assertTrue(all(span["dur"] >= 0 for span in spans))

    def test_zero_and_number_of_gpus_change_no_bit(self):
        two = self.train_losses(mesh__dp=2)
        self.expect_equal(
            two, {}, {"mesh__zero": 1}, {"mesh__zero": 2}, {"mesh__zero": 3}, {"mesh__zero": 3, "gpus": 2},
            {"mesh__pp": 2, "mesh__zero": 3, "gpus": 2}, mesh__dp=2)
        all_axes = self.train_losses(mesh__tp=2, mesh__dp=2, mesh__pp=2)
        self.expect_equal(all_axes, {"gpus": 2, "mesh__zero": 3}, mesh__tp=2, mesh__dp=2, mesh__pp=2)

    def test_trains_in_16_bits(self):
        for precision in ("bf16", "fp16"):
            one = self.train_losses(train__precision=precision)
            self.expect_equal(one, {"mesh__pp": 2}, {"train__graph": "on"}, {"memory__recompute": "full"},
                              train__precision=precision)

    def test_losses_match_cpu_up_to_rounding(self):
        for kind in ("gpt", "llama"):
            changes = {"model__kind": kind}
            if kind == "llama":
                changes["model__dropout"] = 0
            ours = self.train_losses(**changes)
            for a, b in zip(ours, self.train_losses(mesh__device="cpu", **changes)):
                a, b = float.fromhex(a), float.fromhex(b)
                self.assertLess(abs(a - b), ROUNDING * b)

    def test_aten_is_default_and_matches_losses_of_cpu(self):
        small = {"model__layers": 1, "model__width": 16, "train__steps": 2, "train__mini_batch": 4,
                 "train__micro_batch": 4, "train__graph": "off"}
        ours = self.train_losses(train__primitives="auto", **small)
        own = self.train_losses(**small)
        processor = self.train_losses(mesh__device="cpu", **small)
        self.assertNotEqual(ours, own)
        for a, b in zip(ours, processor):
            a, b = float.fromhex(a), float.fromhex(b)
            self.assertLess(abs(a - b), ROUNDING * b)
        self.environment["STRATA_CUDA_PRODUCTS"] = "cublaslt"
        self.refuse("train", "recipe.yaml", *settings(train__primitives="aten", **small), says="train.primitives=own")

    def test_epilogues_of_products_change_only_rounding(self):
        plain = self.train_losses()
        self.environment["STRATA_CUDA_PRODUCTS"] = "cublaslt"
        ours = self.train_losses()
        if not REAL:  # in fp32 cuBLASLt computes no GELU, so results may equal ATen's
            self.assertNotEqual(ours, plain)
        for a, b in zip(ours, plain):
            a, b = float.fromhex(a), float.fromhex(b)
            self.assertLess(abs(a - b), ROUNDING * b)
        self.expect_equal(ours, {"memory__recompute": "none"}, {"memory__recompute": "full"}, {"mesh__pp": 2},
                          {"train__graph": "on"})

    @unittest.skipIf(REAL, "there are as many as there are")
    def test_plans_use_number_of_gpus(self):
        self.environment["STRATA_EMULATED_GPUS"] = "2"
        for ranks, recorded in ((2, True), (4, False)):  # ranks that share a GPU do not record
            with self.subTest(ranks=ranks):
                plan = self.succeed("plan", "recipe.yaml", "--estimate", *settings(mesh__pp=ranks))
                self.assertEqual("recorded segments" in plan, recorded, plan)
        self.environment["STRATA_EMULATED_GPUS"] = "3"  # the number of GPUs, not of processors
        self.succeed("plan", "recipe.yaml", "--estimate", *settings(mesh__auto="true"),
                     "--json", "plan.json")
        mesh = json.loads((self.folder / "plan.json").read_text())["mesh"]
        self.assertEqual(mesh["pp"] * mesh["dp"] * mesh["tp"], 3)

    def test_processes_without_nccl_match_threads(self):
        threads = self.train_losses(mesh__pp=2, mesh__dp=2)
        self.assertEqual(self.train_losses(mesh__pp=2, mesh__dp=2, launch=("launch", "-n", "2", "--")), threads)

    def test_saved_run_resumes_and_generates(self):
        whole = self.train_losses(train__steps=4)
        first = self.train_losses(train__steps=4, train__checkpoint_folder="saved", train__checkpoint_every=2)[:2]
        rest = self.train_losses("--resume", "saved/step-00000002", train__steps=4)
        self.assertEqual(first + rest, whole)
        self.assertEqual(self.train_losses("--resume", "saved/step-00000002", train__steps=4, mesh__pp=2), rest)
        self.succeed("generate", "saved", "--prompt", "The", "--tokens", "4", "--set", "mesh.device=cuda")
        self.succeed("evaluate", "saved", "--set", "mesh.device=cuda")

    def plan(self, gpus, **changes):
        self.environment["STRATA_EMULATED_GPUS"] = str(gpus)
        out = self.succeed("plan", "recipe.yaml", *settings(**changes), "--estimate", "--json", "plan.json")
        return out, json.loads((self.folder / "plan.json").read_text())

    # Emulated GPUs have no libraries, so no workspaces.
    @unittest.skipIf(REAL, "with no workspaces")
    def test_ranks_use_planned_bytes(self):
        on_host = {"memory__gradients": "host", "memory__states": "host"}
        for case in ({}, {"train__graph": "off"}, {"memory__recompute": "full"}, on_host,
                     {**on_host, "memory__weights": "host", "memory__window": 2},
                     {**on_host, "memory__weights": "device", "mesh__dp": 2, "mesh__zero": 1},
                     {"mesh__dp": 2, "mesh__zero": 2}, {**on_host, "mesh__dp": 2, "mesh__zero": 3},
                     {"mesh__pp": 2}, {**on_host, "mesh__pp": 2, "mesh__dp": 2, "mesh__zero": 2}):
            with self.subTest(**case):
                _, plan = self.plan(1, **case)
                promised = []
                for rank in plan["ranks"]:
                    kinds = rank["memory"]["bytes_at_peak"]
                    promised += [sum(kinds.values()) - kinds["workspaces"]] * plan["mesh"]["dp"]
                self.succeed("train", "recipe.yaml", *settings(**case), "--metrics", "m.jsonl")
                peaks = self.metrics("m.jsonl")[-1]["peak_bytes"]
                (self.folder / "m.jsonl").unlink()
                self.assertEqual(len(peaks), len(promised))
                for peak, most in zip(peaks, promised):
                    # blocks of activations are not counted
                    self.assertLessEqual(peak, 1.002 * most)
                    self.assertGreater(peak, 0.85 * most)

    @unittest.skipIf(REAL, "of so many GPUs")
    def test_plan_counts_ranks_that_share_gpu(self):
        def work(plan):
            return sum(rank["time"]["work_seconds"] for rank in plan["ranks"])
        out, apart = self.plan(4, mesh__pp=4, train__graph="off")
        self.assertNotIn("devices    ", out)
        out, shared = self.plan(1, mesh__pp=4, train__graph="off")
        self.assertIn("devices    4 ranks share 1 GPU", out)
        self.assertAlmostEqual(work(shared), work(apart), 9)
        self.assertGreaterEqual(shared["step_seconds"], work(shared))
        self.assertLess(apart["step_seconds"], work(apart) + apart["ranks"][0]["launch_wait_seconds"])
        _, replicas = self.plan(1, mesh__dp=2, train__graph="off")
        _, two = self.plan(2, mesh__dp=2, train__graph="off")
        self.assertAlmostEqual(work(replicas), 2 * work(two), 9)

    @unittest.skipIf(REAL, "of so many GPUs")
    def test_mesh_search_uses_available_gpus(self):
        def search(gpus, **changes):
            return self.plan(gpus, mesh__auto="true", mesh__ranks=4, train__graph="off", **changes)
        _, apart = search(4)
        out, shared = search(1)
        self.assertIn("devices    4 ranks share 1 GPU", out)
        self.assertGreater(shared["step_seconds"], 2 * apart["step_seconds"])
        # A replica would need about half of the GPU's 1 GiB.
        _, full = search(1, model__width=640, model__layers=6, memory__gradients="device", memory__states="device",
                         memory__weights="device")
        devices = full["shared_devices"]
        self.assertLessEqual(devices["peak_bytes"], devices["bytes"])
        self.assertNotEqual((full["mesh"]["dp"], full["mesh"]["zero"]), (4, 0))

    @unittest.skipIf(REAL, "of so many GPUs")
    def test_processes_plan_for_shared_gpus(self):
        for gpus, says in ((1, "devices  4 ranks share 1 GPU, up to 4 on one"),
                           (2, "devices  4 ranks share 2 GPUs, up to 2 on one"), (4, None)):
            with self.subTest(gpus=gpus):
                self.environment["STRATA_EMULATED_GPUS"] = str(gpus)
                out = self.succeed("launch", "-n", "2", "--", "train", "recipe.yaml",
                                   *settings(mesh__pp=4, train__steps=1))
                if says:
                    self.assertIn(says, out)
                else:
                    self.assertNotIn("share", out)

    def test_does_not_measure_layer_larger_than_gpu(self):
        self.environment["STRATA_EMULATED_GPUS"] = "1"
        wide = settings(model__width=65536 if REAL else 4096, memory__recompute="full")
        self.refuse("plan", "recipe.yaml", *wide, says=["pipeline.probe", "than cuda:0 has free"], code=3)

    def test_verify_passes(self):
        self.succeed("verify", "recipe.yaml", *settings(mesh__pp=2))


def has_no_gpu():
    class Machine(ProgramTest):
        def runTest(self):
            code, _, err = self.run_program("plan", "recipe.yaml", "--set", "mesh.device=cuda")
            self.has_none = code != 0 and "this machine has no CUDA device" in err

    machine = Machine()
    return machine.run().wasSuccessful() and machine.has_none


if __name__ == "__main__":
    if REAL and has_no_gpu():
        print("skipped: this machine has no CUDA device")
        sys.exit(77)
    unittest.main()
