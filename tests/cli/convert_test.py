"""Tests what `strata convert` writes and refuses."""

import csv
import unittest

from strata_program import ProgramTest

SYNTHETIC = """
data:
  format: synthetic
  synthetic:
    samples: 3000
    validation_samples: 500
    features: [{name: user, cardinality: 100}, {name: tags, cardinality: 20, zipf: 0, most_ids: 3}]
    numeric: 1
model: {kind: whatever, depth: 3}
"""


class Convert(ProgramTest):
    def write(self, name, text):
        (self.folder / name).write_text(text, encoding="utf-8")

    def rows(self, name):
        with open(self.folder / name, newline="", encoding="utf-8") as file:
            return list(csv.reader(file))

    def test_records_convert_back_to_equal_csv(self):
        rows = [["label", 'a "b"', "c"], ["1", "x,y", "two\nlines"], ["0", "", "é"]]
        with open(self.folder / "in.csv", "w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows(rows)
        self.assertIn("2 samples of 3 columns", self.succeed("convert", "in.csv", "out.strata"))
        self.succeed("convert", "out.strata", "back.csv")
        self.assertEqual(self.rows("back.csv"), rows)

    def test_criteo_columns_get_names(self):
        self.write("day_0", "1\t" + "\t".join(["2"] * 13 + ["68fd1e64"] * 26) + "\n")
        self.succeed("convert", "day_0", "out.csv", "--set", "data.format=criteo")
        header = self.rows("out.csv")[0]
        self.assertEqual(header[:2] + header[-1:], ["label", "I1", "C26"])

    def test_generates_clicks_with_known_best_auc(self):
        self.write("clicks.yaml", SYNTHETIC)
        for name in ("one.csv", "two.csv"):
            self.assertRegex(self.succeed("convert", "clicks.yaml", name),
                             r"best AUC +0\.\d{5}, log loss")
        self.assertEqual(self.rows("one.csv"), self.rows("two.csv"))
        self.assertEqual(self.rows("one.csv")[0], ["label", "n1", "user", "tags"])
        self.assertEqual(len(self.rows("one.csv")), 3001)
        self.assertIn("500 samples",
                      self.succeed("convert", "clicks.yaml", "held.tsv", "--validation"))

    def test_refuses_other_files_by_their_kind(self):
        self.refuse("convert", "nowhere.csv", "out.strata", says="name an existing file")
        self.refuse("convert", ".", "out.strata", says="checkpoints are Hugging Face folders")
        self.refuse("convert", "recipe.yaml", "out.strata",
                    says=["recipe.yaml:2:", "trains on text", "recipes/clicks.yaml"])

    def test_reports_place_of_bad_input(self):
        self.write("bad.csv", "a,b\n1,2\n\n1,2,3\n")
        self.refuse("convert", "bad.csv", "out.strata",
                    says="bad.csv:4: the line has another number of columns")
        self.assertEqual(list(self.folder.glob("out.strata*")), [])
        self.write("none.yaml", SYNTHETIC.replace("validation_samples: 500", "validation_samples: 0"))
        for name in ("out.csv", "out.strata"):
            self.refuse("convert", "none.yaml", name, "--validation", says="data.synthetic.validation_samples is 0")
            self.assertFalse((self.folder / name).exists())
        self.write("good.csv", "a,b\n1,2\n")
        self.refuse("convert", "good.csv", "out.strata", "--set", "data.formt=csv",
                    says="did you mean 'data.format'?")
        self.refuse("convert", "good.csv", "out.strata", "--validation",
                    says="data.validation names no file")
        self.refuse("convert", "good.csv", "no/such/folder/out.strata", says="no/such/folder")
        self.write("bad.yaml", SYNTHETIC.replace("zipf: 0", "ziff: 0"))
        self.refuse("convert", "bad.yaml", "out.csv",
                    says=["bad.yaml:7:", "did you mean 'data.synthetic.features[1].zipf'?"])
        self.write("less.yaml", SYNTHETIC.replace("most_ids: 3", "most_ids: 3, least_ids: 4"))
        self.refuse("convert", "less.yaml", "out.csv",
                    says=["less.yaml:7:", "data.synthetic.features[1].least_ids"])


if __name__ == "__main__":
    unittest.main()
