"""Tests that every bad recipe gives one clear error with its fix, exit code 2, and no partial
file."""

import pathlib
import unittest

from strata_program import RECIPE, ProgramTest


class BadRecipes(ProgramTest):
    def refuse_train(self, *overrides, says):
        before = sorted(self.folder.rglob("*"))
        arguments = [argument for override in overrides for argument in ("--set", override)]
        self.refuse("train", "recipe.yaml", "--metrics", "metrics.jsonl", "--report", "report.html",
                    "--set", "train.checkpoint_folder=saved", *arguments, says=says)
        self.assertEqual([path for path in sorted(self.folder.rglob("*"))
                          if "cache" not in path.parts], before)

    def test_reports_line_column_and_nearest_name_of_unknown_field(self):
        (self.folder / "recipe.yaml").write_text(RECIPE.replace("width:", "widht:"))
        self.refuse_train(says=["recipe.yaml:1:", "widht", "width"])

    def test_refuses_retired_field_unless_it_has_its_last_default(self):
        for name, default, other, fix in [
                ("mesh.stall_seconds", "10", "5", "mesh.stall_fatal_seconds"),
                ("memory.link.latency", "0", "0.001", "--machine"),
                ("memory.disk.io", "auto", "threads", "io_uring where the kernel permits it")]:
            self.refuse_train(f"{name}={other}", says=["--set", name, other, fix])
            plan = ["plan", "recipe.yaml", "--estimate"]
            self.assertEqual(self.succeed(*plan, "--set", f"{name}={default}"), self.succeed(*plan))

    def test_refuses_value_of_wrong_type(self):
        (self.folder / "recipe.yaml").write_text(RECIPE.replace("layers: 4", "layers: four"))
        self.refuse_train(says=["recipe.yaml:1:", "four"])

    def test_refuses_malformed_yaml(self):
        (self.folder / "recipe.yaml").write_text("model: {layers: 4\ndata: [")
        self.refuse_train(says="recipe.yaml")

    def test_refuses_more_stages_than_layers(self):
        self.refuse_train("mesh.pp=9", says=["more stages than layers", "mesh.pp=6"])

    def test_refuses_micro_batch_larger_than_mini_batch(self):
        self.refuse_train("train.micro_batch=9", says=["train.micro_batch", "at most 8"])

    def test_refuses_missing_data(self):
        self.refuse_train("data.train=nowhere.txt", says="nowhere.txt")

    def test_explains_missing_data_of_shipped_recipe(self):
        recipe = pathlib.Path(__file__).parents[2] / "recipes/adult.yaml"
        self.refuse("train", str(recipe), says=["data/adult/train.csv", "make adult"])

    def test_refuses_empty_data(self):
        (self.folder / "empty.txt").write_text("")
        self.refuse_train("data.train=empty.txt", says="empty.txt")

    def test_refuses_too_little_data_for_one_sample(self):
        (self.folder / "short.txt").write_text("word")
        self.refuse_train("data.train=short.txt", says="short.txt")

    def test_refuses_vocabulary_that_lacks_bytes(self):
        self.refuse_train("model.vocab=100", says=["model.vocab", "256"])

    def test_reports_bytes_and_smaller_plan_for_too_small_budget(self):
        self.refuse_train("memory.device=100KiB", says=["weights", "memory"])

    def test_refuses_heads_that_do_not_divide_width(self):
        self.refuse_train("model.heads=3", says="model.heads")

    def test_refuses_unknown_recipe_verb_and_flag(self):
        self.refuse("train", "nowhere.yaml", says="nowhere.yaml")
        self.refuse("trian", says="cli.arguments")
        self.refuse("train", "recipe.yaml", "--metric", "x", says="cli.arguments")

    def test_suggests_field_or_nearest_option_for_unknown_option(self):
        for arguments, fix in [(["--steps", "10"], "--set train.steps=VALUE"),
                               (["--steps=10"], "--set train.steps=VALUE"),
                               (["--lr", "1"], "--set train.optimizer.learning_rate=VALUE"),
                               (["--metric", "x"], "did you mean '--metrics'?")]:
            err = self.refuse("train", "recipe.yaml", *arguments, says=fix)
            self.assertIn("'" + " ".join(arguments) + "'", err)

    def test_lists_verbs_without_verb(self):
        self.assertEqual(self.succeed(), self.succeed("--help"))
        self.assertNotIn("PATH", self.succeed("train", "--help").replace("PATH=VALUE", ""))

    def test_suggests_own_name_for_name_of_other_frameworks(self):
        self.refuse_train("mesh.device=gpu", says="did you mean 'cuda'?")
        self.refuse_train("train.lr=1e-3", says="did you mean 'train.optimizer.learning_rate'?")
        self.refuse_train("memory.device=8G", says="did you mean '8GiB'?")
        self.refuse("plan", "recipe.yaml", "--machine", "H100", says="did you mean 'h100'?")

    def test_plan_lists_fields_without_effect(self):
        idle = self.succeed("plan", "recipe.yaml", "--estimate", "--set", "mesh.zero=3", "--set",
                            "memory.window=3")
        self.assertIn("no effect  mesh.zero 3: with mesh.dp 1", idle)
        self.assertIn("no effect  memory.window 3: no weights leave", idle)
        busy = self.succeed("plan", "recipe.yaml", "--estimate", "--set", "mesh.zero=3", "--set",
                            "mesh.dp=2", "--set", "memory.window=3")
        self.assertNotIn("no effect", busy)

    def test_refuses_row_servers_without_address(self):
        (self.folder / "clicks.yaml").write_text(
            "model: {kind: dlrm, bottom: [8], top: [8]}\n"
            "data: {train: clicks.tsv, numeric: [price], categorical: [{name: user, width: 8}]}\n"
            "train: {steps: 1}\n"
            "embedding: {servers: ['host:7001', nonsense]}\n")
        self.refuse("plan", "clicks.yaml", "--estimate", says=["clicks.yaml:4:", "'nonsense'", "HOST:PORT"])
        self.refuse("plan", "clicks.yaml", "--estimate", "--set", "embedding.servers=[]",
                    says=["--set", "no servers are named"])

    def test_every_verb_refuses_unsupported_recommender_options(self):
        (self.folder / "clicks.tsv").write_text("label\tprice\tuser\n" + "1\t2\ta\n0\t3\tb\n" * 8)
        (self.folder / "clicks.yaml").write_text(
            "model: {kind: dlrm, bottom: [8], top: [8]}\n"
            "data: {train: clicks.tsv, numeric: [price], categorical: [{name: user, width: 8}]}\n"
            "train: {steps: 1, mini_batch: 4}\n"
            "embedding: {servers: ['unix:a.sock']}\n")
        before = sorted(self.folder.iterdir())
        for field, says in [("memory.disk.path=disk", "memory.disk.path: a recommender's net"),
                            ("data.categorical=[{name: user, width: 8, pool: sequence}]", "a sequence has a length"),
                            ("embedding.optimizer.beta1=5", "'embedding.optimizer.beta1' is out of range")]:
            for verb, *arguments in (["plan", "--estimate"], ["train"], ["verify"], ["row", "user", "1"],
                                     ["embed-server", "--folder", "rows"]):
                self.refuse(verb, "clicks.yaml", *arguments, "--set", field, says=["--set", says])
        self.assertEqual(sorted(self.folder.iterdir()), before)

    def test_refuses_field_of_other_kind_of_model(self):
        self.refuse_train("model.kind=llama", says=["model.dropout", "expected  0", "got       0.1"])

    def test_refuses_machine_with_unknown_field(self):
        (self.folder / "mine.yaml").write_text("name: mine\nstorage: 3\n")
        self.refuse("plan", "recipe.yaml", "--machine", "mine.yaml",
                    says=["mine.yaml:2:1", "'storage'", "strata options"])
        listed = self.succeed("options").split("--machine", 1)[1]
        for field in ("device.bandwidth", "host.update_one_core", "network.latency"):
            self.assertIn(f"\n{field} ", listed)

    def test_refuses_unknown_override(self):
        self.refuse_train("train.stepz=3", says="train.steps")

    def test_refuses_recipe_of_one_comma(self):
        (self.folder / "recipe.yaml").write_text(",")
        self.refuse_train(says=["recipe.yaml:1:1", "malformed YAML"])

    def test_refuses_device_or_model_as_recipe(self):
        self.refuse("plan", "/dev/zero", says="too long")
        self.refuse("plan", str(self.folder), says="recipe")

    def test_refuses_implausible_sizes(self):
        for override, words in [
                ("train.mini_batch=4000000000", ["train.mini_batch", "out of range", "16777216"]),
                ("mesh.tp=1000000000", ["mesh.tp", "out of range"]),
                ("mesh.dp=1000000000", ["mesh.dp", "out of range"]),
                ("mesh.pp=5000", ["mesh.pp", "out of range"]),
                ("mesh.threads=5000", ["mesh.threads", "out of range"]),
                ("mesh.virtual_stages=9223372036854775807", ["out of range"]),
                ("model.vocab=9223372036854775807", ["model.vocab", "out of range"]),
                ("model.layers=9223372036854775807", ["model.layers", "out of range"]),
                ("model.width=9223372036854775806", ["model.width", "out of range"]),
                ("model.context=9223372036854775807", ["model.context", "out of range"]),
                ("train.steps=9223372036854775807", ["train.steps", "out of range"])]:
            with self.subTest(override):
                self.refuse_train(override, says=words)

    def test_refuses_implausible_product_of_sizes(self):
        self.refuse_train("mesh.auto=true", "mesh.tp=1000000", "mesh.dp=1000000",
                          says=["too many ranks", "1048576"])
        self.refuse_train("train.mini_batch=16777216", "train.micro_batch=1",
                          says=["too many micro-batches", "train.micro_batch"])
        self.refuse_train("model.width=16777216", "model.vocab=2147483647",
                          says="more elements than can be counted")
        self.refuse_train("train.mini_batch=16777216", "train.micro_batch=16777216",
                          "model.vocab=2147483647", says="more elements than can be counted")

    def test_refuses_auto_mesh_with_too_many_ranks(self):
        self.refuse_train("mesh.auto=true", "mesh.pp=1", "mesh.tp=1000003",
                          says=["mesh.auto", "smaller number"])

    def test_refuses_thousands_of_threads(self):
        self.refuse_train("mesh.pp=1", "mesh.dp=8", "mesh.threads=1000",
                          says=["too many threads", "8 ranks of 1000 threads"])

    def test_refuses_missing_device(self):
        self.refuse_train("mesh.device=gpu", says=["mesh.device", "auto, cpu, cuda"])
        cuda = ["recipe.yaml", "--set", "mesh.device=cuda"]
        code, out, err = self.run_program("train", *cuda)
        if code == 0:
            self.skipTest("this build and machine have CUDA")
        for verb in ("train", "verify", "plan"):
            self.refuse(verb, *cuda, says=["device.cuda", "this build has no CUDA", "set mesh.device=cpu"])
        self.assertIn("rank 1", self.succeed("plan", *cuda, "--estimate"))

    def test_message_quotes_at_most_one_line(self):
        megabyte = "x" * 100_000  # as long as an argument may be
        for override in (megabyte, megabyte + "=1", "train.steps=" + megabyte,
                         "mesh.schedule=" + megabyte, "data.train=" + megabyte):
            with self.subTest(override[:20]):
                code, out, err = self.run_program("train", "recipe.yaml", "--set", override)
                self.assertEqual(code, 2, err[:2000])
                self.assertLess(len(err), 2000)

    def test_plans_hundred_thousand_layers(self):
        out = self.succeed("plan", "recipe.yaml", "--estimate", "--set", "model.layers=100000",
                           "--set", "model.width=16")
        self.assertIn("100002 layers", out)


if __name__ == "__main__":
    unittest.main()
