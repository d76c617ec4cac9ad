"""Every bad recipe gives one clear error with the fix, exit code 2, and nothing half-written."""

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

    def test_unknown_field_names_line_column_and_the_nearest(self):
        (self.folder / "recipe.yaml").write_text(RECIPE.replace("width:", "widht:"))
        self.refuse_train(says=["recipe.yaml:1:", "widht", "width"])

    def test_wrong_type(self):
        (self.folder / "recipe.yaml").write_text(RECIPE.replace("layers: 4", "layers: four"))
        self.refuse_train(says=["recipe.yaml:1:", "four"])

    def test_malformed_yaml(self):
        (self.folder / "recipe.yaml").write_text("model: {layers: 4\ndata: [")
        self.refuse_train(says="recipe.yaml")

    def test_more_stages_than_layers(self):
        self.refuse_train("mesh.pp=9", says=["more stages than layers", "mesh.pp=6"])

    def test_micro_batch_larger_than_mini_batch(self):
        self.refuse_train("train.micro_batch=9", says=["train.micro_batch", "at most 8"])

    def test_missing_data(self):
        self.refuse_train("data.train=nowhere.txt", says="nowhere.txt")

    def test_empty_data(self):
        (self.folder / "empty.txt").write_text("")
        self.refuse_train("data.train=empty.txt", says="empty.txt")

    def test_too_little_data_for_one_sample(self):
        (self.folder / "short.txt").write_text("word")
        self.refuse_train("data.train=short.txt", says="short.txt")

    def test_vocabulary_that_does_not_hold_every_byte(self):
        self.refuse_train("model.vocab=100", says=["model.vocab", "256"])

    def test_budget_too_small_prints_the_bytes_and_what_would_fit(self):
        self.refuse_train("memory.device=100KiB", says=["weights", "memory"])

    def test_heads_that_do_not_divide_the_width(self):
        self.refuse_train("model.heads=3", says="model.heads")

    def test_unknown_recipe_verb_and_flag(self):
        self.refuse("train", "nowhere.yaml", says="nowhere.yaml")
        self.refuse("trian", says="cli.arguments")
        self.refuse("train", "recipe.yaml", "--metric", "x", says="cli.arguments")

    def test_an_override_that_does_not_exist(self):
        self.refuse_train("train.stepz=3", says="train.steps")


if __name__ == "__main__":
    unittest.main()
