"""Tests every verb on a small recipe."""

import datetime
import json
import re
import time
import unittest

from strata_program import ProgramTest


class Verbs(ProgramTest):
    def test_plan_prints_stages_and_grid(self):
        out = self.succeed("plan", "recipe.yaml")
        for words in ("rank 0", "rank 1", "F0", "B0", "weights", "bubble"):
            self.assertIn(words, out)
        self.succeed("plan", "recipe.yaml", "--estimate", "--json", "plan.json")
        self.assertTrue(json.loads((self.folder / "plan.json").read_text()))

    def test_train_writes_metrics_trace_and_report(self):
        self.succeed("train", "recipe.yaml", "--metrics", "m.jsonl", "--trace", "t.json",
                     "--report", "r.html")
        steps = self.metrics("m.jsonl")
        self.assertEqual([step["step"] for step in steps], list(range(1, 9)))
        for step in steps:
            self.assertEqual(float.fromhex(step["loss_hex"]), step["loss"])
            self.assertEqual(len(step["peak_bytes"]), 2)
            self.assertGreater(step["tokens_per_second"], 0)
            self.assertTrue(0 <= step["bubble"] < 1)
        names = {event.get("name") for event in
                 json.loads((self.folder / "t.json").read_text())["traceEvents"]}
        self.assertIn("F s0 m0", names)
        report = (self.folder / "r.html").read_text()
        spans = [span for rank in self.card(self.page("r.html"), "timeline")["timeline"]["ranks"]
                 for row in rank["rows"] for side in row["sides"] for span in side["spans"]]
        # 8 samples in micro-batches of 2, on two ranks, predicted and measured
        self.assertGreaterEqual(sum(span["style"] == "backward" for span in spans), 2 * 2 * 4)
        self.assertNotIn("http://", report.replace("http://www.w3.org", ""))

    def test_refuses_impossible_evaluations_before_work(self):
        train = ("train", "recipe.yaml", "--metrics", "m.jsonl", "--set", "train.checkpoint_folder=saved")
        self.refuse(*train, "--importance", says=["--importance", "neither features", "a recommender"])
        for name in ("m.jsonl", "saved"):
            self.assertFalse((self.folder / name).exists(), name)
        self.succeed(*train, "--report", "r.html")
        for options in (["--importance"], ["--hot-ids", "3"]):
            self.refuse("evaluate", "saved", *options, "--json", "found.json", says=[options[0], "neither features"])
        none = ("--set", "data.validation_fraction=0")
        self.refuse("evaluate", "saved", *none, "--json", "found.json", says="no samples to evaluate on")
        self.assertFalse((self.folder / "found.json").exists())
        self.succeed("evaluate", "saved", "--json", "found.json")

    def test_reports_run_that_has_ended(self):
        train = ("train", "recipe.yaml", "--set", "train.checkpoint_folder=saved")
        self.succeed(*train)
        out = self.succeed(*train, "--resume", "saved", "--trace", "t.json", "--report", "r.html")
        for words in ("none was left: train.steps is 8", "trace    none", "loss     validation", "report   r.html"):
            self.assertIn(words, out)
        self.assertNotIn("measured", out)

    def test_names_bad_verb_or_number(self):
        for launched in ((), ("launch", "-n", "2")):
            err = self.refuse(*launched, "trian", "recipe.yaml", says=["trian", "evaluate", "did you mean 'train'"])
            self.assertEqual(err.count("no such verb"), 1)  # only one process prints it
        for words, limit in ((("launch", "-n", "0", "plan", "recipe.yaml"), "1024"),
                             (("generate", "saved", "--temperature", "-1"), "at least 0"),
                             (("generate", "saved", "--bytes", "-1"), "at least 0"),
                             (("embed-server", "recipe.yaml", "--sync-updates", "0"), "from 1 to"),
                             (("embed-server", "recipe.yaml", "--ranks", "2000000000"), "from 1 to 65536"),
                             (("embed-server", "recipe.yaml", "--shards", "2000000000"), "from 1 to 1024"),
                             (("embed-server", "recipe.yaml", "--shard", "1024"), "from 0 to 1023")):
            err = self.refuse(*words, says=[words[-3] if words[0] == "launch" else words[-2], limit])
            self.assertLess(len(err), 200, err)

    def test_refuses_unwritable_outputs_before_work(self):
        train = ("train", "recipe.yaml", "--metrics", "m.jsonl")
        for field in ("train.checkpoint_folder", "train.tensorboard"):
            for path in ("text.txt", "text.txt/deeper"):
                self.refuse(*train, "--set", f"{field}={path}", says=[field, "text.txt", "a folder"])
        self.assertFalse((self.folder / "m.jsonl").exists())
        for words in (("plan", "recipe.yaml", "--json", "."), ("doctor", "--save", "."),
                      ("verify", "recipe.yaml", "--resume", "none")):
            code, out, err = self.run_program(*words)
            self.assertEqual((code, out), (2, ""), err)
            self.assertIn(words[-2] if words[-1] == "." else "none", err)
        self.assertFalse((self.folder / "cache").exists())

    def probed(self):
        entries = json.loads((self.folder / "cache/strata/probe.json").read_text())
        self.assertTrue(entries)
        return entries

    def test_training_corrects_probe_of_busy_machine(self):
        # more ranks than cores would measure the sharing
        one = ("recipe.yaml", "--set", "mesh.pp=1")
        self.succeed("plan", *one)
        path = self.folder / "cache/strata/probe.json"
        # Uniformly slow, without a spread: an entry with a spread would be measured again first.
        busy = {key: {part: [100 * seconds, 0, samples]
                      for part, (seconds, _, samples) in entry.items()}
                for key, entry in self.probed().items()}
        path.write_text(json.dumps(busy))
        out = self.succeed("train", *one, "--report", "r.html")
        self.assertRegex(out, r"The step differs by -.* from the prediction, because of the probe: ")
        self.assertIn("because of the probe", (self.folder / "r.html").read_text())
        for key, entry in self.probed().items():
            for part in ("forward", "backward"):
                self.assertLess(entry[part][0], busy[key][part][0] / 5, (key, part))

    def test_cache_separates_precisions_and_threads(self):
        self.succeed("plan", "recipe.yaml")
        count = len(self.probed())
        self.succeed("plan", "recipe.yaml")
        self.assertEqual(len(self.probed()), count)
        self.succeed("plan", "recipe.yaml", "--set", "train.precision=bf16")
        self.assertEqual(len(self.probed()), 2 * count)
        self.succeed("plan", "recipe.yaml", "--set", "mesh.threads=2")
        self.assertEqual(len(self.probed()), 3 * count)

    def test_plan_prints_rates_and_cores(self):
        def plan(threads):
            out = self.succeed("plan", "recipe.yaml", "--estimate", "--json", "plan.json", "--set",
                               f"mesh.threads={threads}")
            self.assertIn("seconds    from 50 GFLOP/s of fp32 products, assumed", out)
            return out, json.loads((self.folder / "plan.json").read_text())["step_seconds"]
        self.assertIn("cores      2 ranks of 1000 threads share ", plan(1000)[0])
        self.assertGreater(plan(1000)[1], 1.5 * plan(500)[1])

    def test_doctor_saves_rates_for_plans(self):
        bf16 = ["plan", "recipe.yaml", "--estimate", "--set", "train.precision=bf16"]
        self.assertNotIn("precision", self.succeed(*bf16))
        measured = json.loads(self.succeed("doctor", "--json"))
        self.assertEqual(set(measured["precisions"]), {"fp32", "bf16", "fp16"})
        for rate in measured["precisions"].values():
            self.assertGreater(rate["gemm_flops_per_second"], 0)
        self.assertIn(measured["fast_in"], measured["precisions"])
        self.assertRegex(measured["tensors_by"], r"tcmalloc of gperftools \d|the C library's")
        self.assertIn(measured["transport"]["kind"], ("sockets", "ucx"))
        self.assertEqual(measured["serving_differs_in"], {"fp32": "", "bf16": ""})
        # One block per GPU, or the reason why there is none.
        self.assertEqual(bool(measured["gpus"]), not measured["why_no_gpu"])
        self.assertRegex(self.succeed(*bf16), r"precision +bf16")
        profile = self.folder / "cache/strata/doctor.json"
        saved = json.loads(profile.read_text())
        for rates in saved.values():
            rates.update(fp32=[1e11, 2e11], bf16=[1e9, 2e9], fp16=[1e9, 2e9])
        profile.write_text(json.dumps(saved))
        self.assertIn("bf16 is slow on this processor", self.succeed(*bf16))

    OFFLOADED = ["plan", "recipe.yaml", "--estimate", "--set", "memory.states=host", "--set", "mesh.pp=1"]

    def test_doctor_measures_rates_of_offloaded_plans(self):
        self.assertIn("updates 10.0 GB/s (assumed); `strata doctor` measures", self.succeed(*self.OFFLOADED))
        before = sorted(self.folder.iterdir())
        out = self.succeed("doctor", "--disk", ".", "--save", "machine.json")
        self.assertRegex(out, r"(?m)^network +(sockets between machines: .+|ucx between machines: RDMA device \w+)$")
        self.assertRegex(out, r"(?m)^serving +bf16 has training's bits, fp32 has training's bits$")
        self.assertRegex(out, r"(?m)^memory +[0-9.]+ [GM]iB free of [0-9.]+ [GM]iB, ")
        for line in ("updates ", "link ", "GB/s read", "doctor.json"):
            self.assertIn(line, out)
        self.assertRegex(out, r"(?m)^GPU (\d+ |          none: this build has no CUDA|          none: no CUDA device)")
        self.assertEqual(sorted(self.folder.iterdir()),
                         sorted({*before, self.folder / "cache", self.folder / "machine.json"}))
        machine = json.loads((self.folder / "machine.json").read_text())
        self.assertGreater(machine["disk"]["write"], 0)
        measured = self.succeed(*self.OFFLOADED)
        self.assertNotIn("assumed", measured)
        # The rate of one thread, unless all cores together measured less because other programs
        # ran.
        rate = min(machine["host"]["update"], machine["host"]["update_one_core"]) / 1e9
        self.assertIn(f"updates {rate:.{1 if rate >= 1 else 3}f} GB/s", measured)
        self.refuse("doctor", "--disk", "recipe.yaml", says="no folder")

    def test_plan_uses_machine_of_file(self):
        (self.folder / "m.yaml").write_text(
            "name: a small one\n"
            "device: {bytes: 760KB, fp32: 1e9, bandwidth: 1GB}\n"
            "link: {to_device: 2GB, to_host: 1GB}\nhost: {bytes: 1GB, reserve: 0, update: 3GB}\n")
        on = ["plan", "recipe.yaml", "--machine", "m.yaml", "--json", "plan.json", "--set", "mesh.pp=1"]
        out = self.succeed(*on)
        self.assertTrue(out.startswith("on a small one\n"), out)
        self.assertIn("link in 2.0 GB/s, out 1.0 GB/s, updates 3.0 GB/s\n", out)
        plan = json.loads((self.folder / "plan.json").read_text())
        self.assertEqual(plan["device_bytes"], 760000)
        self.assertEqual(plan["host_bytes"], 10**9)
        self.assertEqual(plan["tiers"]["states"], "host")
        depths = plan["largest"]
        self.assertEqual([d["layers"] for d in depths], sorted(d["layers"] for d in depths))
        # A recipe's own budget takes precedence over the machine's.
        self.refuse(*on, "--set", "memory.host=900KiB", says="than memory.host allows")
        self.refuse("plan", "recipe.yaml", "--machine", "none.yaml", says="none.yaml")
        (self.folder / "m.yaml").write_text("device: {size: 3}\n")
        self.refuse(*on, says="m.yaml:1:10")

    def test_report_separates_gpu_work_from_launch_waits(self):
        on = ["plan", "recipe.yaml", "--machine", "h100", "--json", "plan.json", "--set", "memory.device=40GiB",
              "--set", "train.graph=off"]
        self.succeed(*on)
        plan = json.loads((self.folder / "plan.json").read_text())
        for rank in plan["ranks"]:
            time = rank["time"]
            self.assertAlmostEqual(time["work_seconds"], rank["busy_seconds"], 12)
            self.assertAlmostEqual(time["work_seconds"], rank["device_time"]["busy_seconds"], 12)
            self.assertAlmostEqual(time["launch_wait_seconds"], rank["launch_wait_seconds"], 12)
            # for a model this small
            self.assertGreater(time["launch_wait_seconds"], time["work_seconds"])
            self.assertAlmostEqual(sum(time.values()), plan["step_seconds"], 12)

    def test_size_counts_embedding_servers(self):
        table = ["size", "embeddings", "6.25T", "--width", "16", "--precision", "fp16"]
        sgd = self.succeed(*table, "--optimizer", "sgd", "--server-memory", "12TB")
        self.assertIn("362 TB\n", sgd)
        self.assertIn("36 of 12 TB, 85 % full", sgd)
        self.assertNotIn("network", sgd)
        out = self.succeed(*table, "--samples", "1.91M", "--disk-rate", "2GB")
        for words in ("32 bytes of values, 4 of states, 26 of header and index: 62", "38 of 12 TB",
                      "1 h 25 min at 2GB a second", "processes a server", "bytes a sample"):
            self.assertIn(words, out)
        self.refuse("size", "embeddings", "many", says="count of rows")
        self.refuse("size", "embeddings", "1e30", says="so many rows")
        self.refuse("plan", "--rows", "1T", says="strata size embeddings")
        self.refuse("size", says="subcommand")
        self.refuse(*table, "--fill", "1.2", says="fill")
        self.refuse(*table, "--width", "0", says="width")
        self.refuse(*table, "--server-memory", "60B", says="memory")
        self.refuse(*table, "--server-memory", "12 lorries", says="12 lorries")
        self.refuse(*table, "--samples", "1M", "--distinct", "0", says="distinct")
        self.refuse(*table, "--disk-rate", "0", says="disk")

    def test_plan_of_recommender_lists_tables(self):
        (self.folder / "clicks.yaml").write_text(
            "model: {kind: dlrm, interaction: cat, bottom: [8], top: [8]}\n"
            "data: {train: clicks.tsv, label: click, numeric: [price], categorical: [{name: user, width: 8},\n"
            "  {name: words, width: 6, separator: ' ', last: 5, embedding: {precision: int8}},\n"
            "  {name: tags, width: 8, separator: ',', embedding: {table: user}}]}\n"
            "embedding: {servers: ['a:1', 'b:1'], memory: 900KiB, wire: {rows: fp16, gradients: fp16}}\n"
            "train: {steps: 1, mini_batch: 400, optimizer: {kind: adamw, learning_rate: 1e-2}}\n"
            "mesh: {dp: 2}\n")
        out = self.succeed("plan", "clicks.yaml", "--estimate", "--json", "plan.json")
        lines = {line.split()[0]: line.split() for line in out.splitlines() if line}
        # fp32 [8] and Adagrad's squares; int8 [6] in 8 bytes with its scale.
        self.assertEqual(lines["user"], "user 8 fp32, adagrad 32 32 26 90 2 20.5 k".split())
        self.assertEqual(lines["words"], "words 6 int8, adagrad 12 24 26 62 5 29.7 k".split())
        self.assertIn("on 2 shards of 900.00 KiB", out)
        self.assertIn("'tags' may have any number of ids", out)
        plan = json.loads((self.folder / "plan.json").read_text())["embedding"]
        self.assertEqual([table["row_bytes"] for table in plan["tables"]], [90, 62])
        # 2 ranks of 200 samples read 400 and 1000 rows each; replies contain no ids.
        self.assertAlmostEqual(plan["step_bytes_sent"] / (2 * (400 * 16 + 1000 * 12)), 1, delta=0.05)

    def test_verify_reports_every_layer_equal(self):
        for recompute in ("none", "cheap", "full"):
            out = self.succeed("verify", "recipe.yaml", "--set", f"memory.recompute={recompute}",
                               "--set", "train.micro_batch=3")
            self.assertIn("bit-equal", out)

    def test_report_shows_its_origin(self):
        version = self.succeed("--version").strip()
        self.assertRegex(version, r"^strata \d+\.\d+\.\d+(, commit [0-9a-f]{12}( with changes)?)?$")
        self.succeed("train", "recipe.yaml", "--set", "train.steps=2", "--report", "r.html")
        facts = dict(self.page("r.html")["facts"])
        self.assertEqual(facts["recipe"], "recipe.yaml --set train.steps=2")
        self.assertEqual(facts["program"], version)
        made = datetime.datetime.strptime(facts["made"], "%Y-%m-%d %H:%M UTC").replace(tzinfo=datetime.timezone.utc)
        self.assertLess(abs(made.timestamp() - time.time()), 300)
        self.assertRegex(facts["machine"], r"\S, \d+ cores?, [\d.]+ GiB$")

    def test_help_prints_type_and_each_choice_once(self):
        verbs = re.findall(r"^  ([a-z-]+) ", self.succeed("--help").split("Verbs:")[1], re.MULTILINE)
        self.assertEqual(len(verbs), 15)
        for verb in verbs:
            with self.subTest(verb):
                text = self.succeed(verb, "--help")
                # CLI11's names of values, and its additional notes.
                self.assertNotRegex(text, r"\b(U?INT|FLOAT)\b|(?<!prompt) TEXT\b|Needs:|Excludes:|REQUIRED|:\{")
                self.assertLessEqual(max(map(len, text.splitlines())), 100)
        self.assertIn("-n,--processes COUNT", self.succeed("launch", "--help"))
        self.assertIn("Usage: strata launch [OPTIONS] VERB ...\n", self.succeed("launch", "--help"))
        self.assertIn("Usage: strata train [OPTIONS] [RECIPE]\n", self.succeed("train", "--help"))
        size = self.succeed("size", "embeddings", "--help")
        self.assertEqual(size.count("scaled_int8"), 1)
        self.assertIn("  --wire NAME", size)
        self.refuse("size", "embeddings", "1M", "--wire", "int4", says=["int4", "fp32, fp16, scaled_fp16, scaled_int8"])
        self.refuse("launch", "-n", "0", "options", says="from 1 to 1024")

    def test_options_lists_every_field(self):
        out = self.succeed("options")
        for field in ("model.layers", "train.optimizer.learning_rate", "memory.device"):
            self.assertIn(field, out)

    def test_recompute_auto_fits_budget_that_cheap_exceeds(self):
        budget = ["--set", "memory.device=4MiB", "--set", "mesh.schedule=gpipe", "--set",
                  "train.mini_batch=32", "--set", "train.micro_batch=8", "--set", "mesh.pp=1",
                  "--set", "model.context=64", "--set", "train.steps=1"]
        self.refuse("train", "recipe.yaml", *budget, says="memory.recompute")
        self.succeed("train", "recipe.yaml", *budget, "--set", "memory.recompute=auto")

    def test_open_micro_batch_is_measured_and_printed(self):
        sizes = ("--set", "train.mini_batch=8", "--set", "train.micro_batch=0")
        out = self.succeed("plan", "recipe.yaml", "--estimate", *sizes)
        self.assertFalse((self.folder / "cache/strata/probe.json").exists(), "--estimate measures nothing")
        self.assertRegex(out, r"micro-batch +step +peak")
        self.assertEqual(len(re.findall(r"^ +[1248] +\S+ \S?s +\S+ \S?iB", out, re.MULTILINE)), 4, out)
        self.assertEqual(out.count("chosen"), 1)
        one_size = len(self.probed_by("plan", "recipe.yaml", "--set", "train.mini_batch=8", "--set", "train.micro_batch=8"))
        self.assertEqual(len(self.probed_by("plan", "recipe.yaml", *sizes)), 4 * one_size)
        out = self.succeed("train", "recipe.yaml", *sizes)
        self.assertRegex(out, r"batch    [1248] of 8 samples a micro-batch, the fastest of 4 sizes")

    def probed_by(self, *arguments):
        self.succeed(*arguments)
        return self.probed()


if __name__ == "__main__":
    unittest.main()
