"""Tests what a recommender's run reports: names, sizes, curves, staleness, and errors of a log."""

import gzip
import json
import random
import re
import struct
import unittest

from strata_program import ProgramTest

RECIPE = """\
model: {kind: dlrm, bottom: [16, 8], top: [16]}
data:
  train: clicks.tsv
  label: click
  numeric: [price]
  categorical: [{name: user id, width: 8}, {name: größe <b>, width: 8, pool: mean, separator: ' '}]
embedding: {staleness: 3, optimizer: {kind: adagrad, learning_rate: 0.1}}
train: {steps: 30, mini_batch: 64, validate_every: 10, decay: constant, optimizer: {kind: adamw, learning_rate: 1e-2}}
mesh: {threads: 1}
"""
LIST = "[{name: user id, width: 8}, {name: größe <b>, width: 8%s}]"


class RecommenderReport(ProgramTest):
    def setUp(self):
        super().setUp()
        (self.folder / "recipe.yaml").write_text(RECIPE)
        draw = random.Random(1)
        lines = ["click\tprice\tuser id\tgröße <b>"]
        for _ in range(2000):
            user, words = min(draw.randrange(40), draw.randrange(40)), [draw.randrange(60) for _ in range(3)]
            click = int(user % 7 + sum(words) % 5 > 5)
            lines.append(f"{click}\t{draw.random():.3f}\tu{user}\t{' '.join(f'w{word}' for word in words)}")
        self.log = "\n".join(lines) + "\n"
        (self.folder / "clicks.tsv").write_text(self.log)

    def train(self, *arguments):
        return self.succeed("train", "recipe.yaml", *arguments)

    def rows(self, page, name):
        """The rows of a section's table by their names."""
        return {row[0]: row[1:] for row in self.card(page, name)["table"]["rows"]}

    def test_report_shows_embeddings_auc_staleness_and_names(self):
        out = self.train("--report", "report.html", "--metrics", "metrics", "--set", "train.tensorboard=board",
                         "--set", "train.checkpoint_folder=saved")
        page = self.page("report.html")
        last = self.metrics("metrics")[-1]
        size = last["embedding"]
        self.assertEqual((size["rows"], size["parameters"], size["cold_rows"]), (100, 800, 0))
        self.assertGreater(size["bytes"], 100 * (8 + 8) * 4)
        self.assertEqual(page["title"], "DLRM, 377 weights, 100 embeddings")
        rows = next(line for line in out.splitlines() if line.startswith("rows"))
        self.assertRegex(rows, r"100 rows, 800 parameters; [\d.]+ .iB in memory, 0 B on disk, peak [\d.]+ .iB")
        self.assertEqual(set(self.rows(page, "embeddings")), {"user id", "größe <b>", "all tables"})
        self.assertIn("embeddings, host", [row["name"] for row in self.card(page, "memory")["bars"]])
        # A point for each validation: after steps 10 and 20, and at the end.
        for name in ("loss", "auc"):
            curve = self.card(page, name)["curves"][-1]
            self.assertEqual(([step for step, _ in curve["points"]], curve["dots"]), ([10, 20, 30], True))
        tiles = {tile["name"]: tile["value"] for tile in page["tiles"]}
        self.assertRegex(tiles["AUC"], r"^0\.\d{4}$")
        steps = [line["embedding"]["staleness"] for line in self.metrics("metrics")]
        reads = [sum(counts[lacked] for step in steps for counts in step.values()) for lacked in range(3)]
        staleness = self.card(page, "staleness")
        self.assertEqual(staleness["table"]["columns"], ["rows read", "in all"] + [f"lacked {i}" for i in range(3)])
        self.assertEqual(self.rows(page, "staleness")["all tables"], [str(sum(reads)), *map(str, reads)])
        self.assertRegex(staleness["caption"], "Waits for rows took|No step waited for rows")
        for table, letter in (("user id", "u"), ("größe <b>", "w")):
            for name in self.rows(page, "Hot ids of " + table):
                self.assertRegex(name, rf"^{letter}\d+$")
        self.assertTrue(any("in the order of their numbers" in card["caption"] for card in page["cards"]))
        found = self.succeed("evaluate", "saved", "--hot-ids", "3", "--json", "found.json")
        self.assertIn("Hot ids of größe <b>", found)
        hot = json.loads((self.folder / "found.json").read_text())["hot_ids"]
        self.assertEqual([table["table"] for table in hot], ["user id", "größe <b>"])
        for table, letter in zip(hot, "uw"):
            for each in table["ids"]:
                self.assertRegex(each["text"], rf"^{letter}\d+$")
                row = json.loads(self.succeed("row", "saved", table["table"], each["text"], "--text", "--json"))
                self.assertEqual((row["id"], row["hits"]), (each["id"], each["updates"]))

    def test_recommender_counts_samples_and_text_counts_tokens_per_second(self):
        for names, other in ((("samples_per_second", "samples/s"), ("tokens_per_second", "tokens/s")),
                             (("tokens_per_second", "tokens/s"), ("samples_per_second", "samples/s"))):
            code, _, progress = self.run_program("train", "recipe.yaml", "--metrics", "metrics", "--report", "r.html",
                                                 "--set", "train.tensorboard=" + names[0])
            self.assertEqual(code, 0, progress)
            events = b"".join(path.read_bytes() for path in (self.folder / names[0]).iterdir())
            for where in (json.dumps(self.metrics("metrics")[-1]), events.decode("latin1")):
                self.assertIn(names[0], where)
                self.assertNotIn(other[0], where)
            for where in (progress, json.dumps(self.page("r.html"))):
                self.assertIn(names[1], where)
                self.assertNotIn(other[1], where)
            super().setUp()  # a recipe for text

    def test_names_with_blanks_work_with_servers(self):
        server = self.start("embed-server", "recipe.yaml", "--shard", "0", "--folder", "rows", "--set",
                            "embedding.servers=['unix:a.sock']")
        self.assertIn("embed-server", server.stdout.readline())
        remote = ("--set", "embedding.servers=['unix:a.sock']")
        self.train(*remote, "--report", "report.html", "--metrics", "metrics")
        page = self.page("report.html")
        self.assertRegex(min(self.rows(page, "Hot ids of user id")), r"^u\d+$")
        self.assertTrue(page["title"].endswith("100 embeddings"), page["title"])
        self.assertNotIn("embeddings, host", [row["name"] for row in self.card(page, "memory")["bars"]])
        sizes = [line["step"] for line in self.metrics("metrics") if "rows" in line["embedding"]]
        self.assertEqual(sizes, [10, 20, 30])
        row = json.loads(self.succeed("row", "recipe.yaml", "user id", "u3", "--text", "--json", *remote))
        self.assertTrue(row["there"], row)
        for question in (f'row "user id" {row["id"]}', 'hot "größe <b>" 3', f'rows "user id" {row["id"]}'):
            self.succeed("embed-server", "--ask", question, "--listen", "unix:a.sock")
        self.refuse("embed-server", "--ask", "hot user id 3", "--listen", "unix:a.sock", says='"user id"')
        self.refuse("embed-server", "--ask", b"hot gr\xf6\xdfe 3", "--listen", "unix:a.sock", says="not UTF-8")
        server.terminate()

    def test_reports_place_of_invalid_utf8(self):
        (self.folder / "recipe.yaml").write_bytes(RECIPE.encode("latin1"))
        self.refuse("train", "recipe.yaml", says=["recipe.yaml:6:53", "not UTF-8", "iconv"])
        (self.folder / "recipe.yaml").write_text(RECIPE)
        self.refuse("train", "recipe.yaml", b"--set=data.categorical=[gr\xf6\xdfe]", says=["--set:1:4", "not UTF-8"])
        self.refuse("train", "recipe.yaml", b"--set=data.label=gr\xf6\xdfe", says=["no column", "gr\\xf6"])
        (self.folder / "clicks.tsv").write_bytes(self.log.encode("latin1"))
        self.refuse("train", "recipe.yaml", says=["clicks.tsv:1:23", "not UTF-8", "data.columns"])
        names = ("--set", "data.columns=[click, price, user id, größe <b>]")
        self.train(*names)
        # Texts are bytes: names that are not UTF-8 are shown as far as possible.
        (self.folder / "clicks.tsv").write_bytes(self.log.replace("\tu", "\tü").encode("latin1"))
        self.train(*names, "--report", "report.html", "--set", "train.checkpoint_folder=saved")
        self.assertTrue(min(self.rows(self.page("report.html"), "Hot ids of user id")).startswith("\ufffd"))
        self.succeed("evaluate", "saved", "--hot-ids", "3", "--json", "found.json")
        self.assertIn("\ufffd", (self.folder / "found.json").read_text())

    def test_packed_log_trains_equal_losses(self):
        names = ("--set", "train.steps=12", "--metrics")
        self.train(*names, "plain")
        plain = [line["loss_hex"] for line in self.metrics("plain")]
        half = self.log.index("\n", len(self.log) // 2) + 1
        packed = gzip.compress(self.log[:half].encode()) + gzip.compress(self.log[half:].encode())
        (self.folder / "clicks.tsv.gz").write_bytes(packed)
        saved = ("--set", "data.train=clicks.tsv.gz", "--set", "train.checkpoint_folder=saved", "--set",
                 "train.checkpoint_every=7")
        self.train(*saved, *names, "packed")
        self.assertEqual([line["loss_hex"] for line in self.metrics("packed")], plain)
        self.train(*saved, *names, "resumed", "--resume", "saved/step-00000007", "--set", "train.checkpoint_folder=again")
        self.assertEqual([line["loss_hex"] for line in self.metrics("resumed")], plain[7:])
        self.succeed("convert", "clicks.tsv.gz", "clicks.csv")
        self.succeed("convert", "clicks.tsv", "same.csv")
        self.assertEqual((self.folder / "clicks.csv").read_bytes(), (self.folder / "same.csv").read_bytes())

    def test_reports_forgotten_separator(self):
        def lists(more):
            return ("--set", "data.categorical=" + LIST % more, "--set", "train.steps=2")

        out = self.train(*lists(""))
        line = next(line for line in out.splitlines() if line.startswith("data "))
        for words in ("größe <b>", "'w", "separator: ' '"):
            self.assertIn(words, line)
        self.assertNotIn("data     ", self.train("--set", "train.steps=2"))
        for more, words in ((", pool: mean", "pool: mean"), (", last: 3", "last: 3")):
            self.refuse("train", "recipe.yaml", *lists(more), says=["größe <b>", words, "separator: ' '"])


if __name__ == "__main__":
    unittest.main()
