"""Recommenders as a user trains them: local rows, rows on servers that are killed, going on, refusals."""

import json
import os
import random
import signal
import time
import unittest

from strata_program import ProgramTest

RECIPE = """\
model: {kind: dlrm, bottom: [16, 8], top: [16]}
data:
  train: clicks.tsv
  label: click
  numeric: [price]
  categorical: [{name: user, width: 8}, {name: words, width: 8, pool: mean, separator: ' '}]
embedding: {servers: ['unix:a.sock', 'unix:b.sock'], optimizer: {kind: adagrad, learning_rate: 0.1}}
train: {steps: 40, mini_batch: 64, decay: constant, optimizer: {kind: adamw, learning_rate: 1e-2}}
mesh: {threads: 1}
"""
LOCAL = ("--set", "embedding.servers=[local]", "--set", "embedding.shards=2")


class Recommender(ProgramTest):
    def setUp(self):
        super().setUp()
        (self.folder / "recipe.yaml").write_text(RECIPE)
        draw = random.Random(1)
        lines = ["click\tprice\tuser\twords"]
        for _ in range(3000):
            user, words = draw.randrange(50), [draw.randrange(80) for _ in range(3)]
            click = int(user % 7 + sum(words) % 5 > 5)
            lines.append(f"{click}\t{draw.random():.3f}\tu{user}\t{' '.join(f'w{word}' for word in words)}")
        (self.folder / "clicks.tsv").write_text("\n".join(lines) + "\n")
        self.servers = {}

    def tearDown(self):
        for server in self.servers.values():
            server.kill()
            server.communicate()

    def serve(self, shard, *arguments):
        server = self.start("embed-server", "recipe.yaml", "--shard", str(shard), "--folder", f"rows-{shard}",
                            *arguments)
        self.servers[shard] = server
        line = server.stdout.readline()
        self.assertIn(f"embed-server shard {shard} of 2", line, server.stderr.read() if not line else "")
        return line

    def train(self, name, *arguments):
        self.succeed("train", "recipe.yaml", "--metrics", name, *arguments)
        return [line["loss_hex"] for line in self.metrics(name)]

    def test_servers_give_the_bits_of_local_rows(self):
        for staleness in (1, 4):
            setting = ("--set", f"embedding.staleness={staleness}")
            for shard in (0, 1):
                self.serve(shard)
            remote = self.train(f"remote-{staleness}", *setting)
            self.assertEqual(len(remote), 40)
            self.assertEqual(remote, self.train(f"local-{staleness}", *LOCAL, *setting))
            self.tearDown()

    def test_a_killed_server_comes_back_and_no_update_is_lost_or_made_twice(self):
        for shard in (0, 1):
            self.serve(shard)
        setting = ("--set", "embedding.staleness=3", "--set", "train.steps=400")
        training = self.start("train", "recipe.yaml", "--metrics", "killed", *setting)
        kills = 0
        draw = random.Random(2)
        while training.poll() is None and kills < 4:
            time.sleep(draw.uniform(0.1, 0.5))
            shard = kills % 2
            self.servers[shard].send_signal(signal.SIGKILL)
            self.servers[shard].communicate()
            self.assertIn("version", self.serve(shard))
            kills += 1
        out, err = training.communicate(timeout=200)
        self.assertEqual(training.returncode, 0, out + err)
        killed = [line["loss_hex"] for line in self.metrics("killed")]
        self.assertEqual(killed, self.train("undisturbed", *LOCAL, *setting))

    def test_a_killed_trainer_goes_on_from_its_checkpoint(self):
        for shard in (0, 1):
            self.serve(shard)
        saving = ("--set", "train.checkpoint_folder=saved", "--set", "train.checkpoint_every=15")
        training = self.start("train", "recipe.yaml", "--metrics", "killed", *saving, "--set", "train.steps=4000")
        deadline = time.time() + 100
        while not (self.folder / "saved/step-00000015/manifest.json").exists() and time.time() < deadline:
            time.sleep(0.01)
        training.send_signal(signal.SIGKILL)
        training.communicate()
        self.assertTrue((self.folder / "saved").exists())
        steps = max(int(path.name.split("-")[1]) for path in (self.folder / "saved").glob("step-*")
                    if not path.name.endswith("partial"))
        self.train("killed", *saving, "--resume", "saved", "--set", f"train.steps={steps + 20}")
        # The metrics have the lines of the run before up to its checkpoint.
        self.assertEqual([line["loss_hex"] for line in self.metrics("killed")],
                         self.train("whole", *LOCAL, "--set", f"train.steps={steps + 20}"))

    def test_saved_rows_are_neither_begun_anew_nor_replayed_upon(self):
        for shard in (0, 1):
            self.serve(shard)
        saving = ("--set", "train.checkpoint_folder=saved", "--set", "train.steps=10")
        self.train("first", *saving)
        before = self.succeed("embed-server", "--ask", "digest 10", "--listen", "unix:a.sock")
        self.refuse("train", "recipe.yaml", says=["saved rows of another run", "--resume"])
        self.succeed("verify", "recipe.yaml")
        self.refuse("verify", "recipe.yaml", "--resume", "saved", says="on servers")
        self.assertEqual(before, self.succeed("embed-server", "--ask", "digest 10", "--listen", "unix:a.sock"))

    def test_questions_to_a_server(self):
        for shard in (0, 1):
            self.serve(shard)
        self.train("metrics")
        answers = [self.succeed("embed-server", "--ask", "digest 40", "--listen", f"unix:{name}.sock")
                   for name in "ab"]
        self.assertTrue(all("digest" in answer for answer in answers), answers)
        self.assertIn("strata", self.succeed("embed-server", "--ask", "metrics", "--listen", "unix:a.sock"))

    def test_one_row_wherever_it_lives(self):
        for shard in (0, 1):
            self.serve(shard)
        self.train("remote")
        self.train("local", *LOCAL, "--set", "train.checkpoint_folder=saved")
        self.assertEqual([line["loss_hex"] for line in self.metrics("remote")],
                         [line["loss_hex"] for line in self.metrics("local")])
        for feature, text in (("user", "u7"), ("words", "w11")):
            remote = json.loads(self.succeed("row", "recipe.yaml", feature, text, "--text", "--json"))
            local = json.loads(self.succeed("row", "saved", feature, text, "--text", "--json"))
            self.assertTrue(local["there"] and local["hits"] > 0, local)
            self.assertEqual(remote, local)
        asked = [self.succeed("row", "recipe.yaml", "user", str(number), "--json") for number in range(4)]
        self.assertEqual([json.loads(line)["there"] for line in asked], [False] * 4)
        shown = self.succeed("row", "saved", "user", "u7", "--text")
        self.assertIn("hits     ", shown)
        self.assertIn("tier     memory", shown)
        self.refuse("row", "saved", "usr", "1", says="'user'")
        self.refuse("row", "saved", "user", "u7", says="--text")
        self.refuse("row", "recipe.yaml", "user", "1", *LOCAL, says="checkpoint")
        self.refuse("row", "unix:a.sock", "user", "u7", "--text", says="number")

    def test_a_checkpoint_is_evaluated_again(self):
        out = self.succeed("train", "recipe.yaml", *LOCAL, "--set", "train.checkpoint_folder=saved", "--importance",
                           "--report", "report.html")
        for words in ("Feature importance", "user", "price"):
            self.assertIn(words, out)
        report = (self.folder / "report.html").read_text()
        for words in ("Feature importance", "Hot ids of user", "Hot ids of words"):
            self.assertIn(words, report)
        asked = ("--importance", "--hot-ids", "3", "--set", "train.micro_batch=16")
        again = self.succeed("evaluate", "saved", *asked, "--json", "found.json")
        loss = next(line for line in out.splitlines() if line.startswith("loss"))
        self.assertIn(loss, again)
        found = json.loads((self.folder / "found.json").read_text())
        self.assertEqual([table["table"] for table in found["hot_ids"]], ["user", "words"])
        self.assertEqual([len(table["ids"]) for table in found["hot_ids"]], [3, 3])
        self.assertEqual({of["feature"] for of in found["importance"]}, {"price", "user", "words"})
        self.succeed("evaluate", "saved", *asked, "--json", "again.json", "--set", "mesh.dp=2")
        self.assertEqual(found, json.loads((self.folder / "again.json").read_text()))
        # A run that is over says the same when it is asked to go on.
        self.assertIn(loss, self.succeed("train", "recipe.yaml", *LOCAL, "--resume", "saved", "--importance"))

    def test_refusals(self):
        self.serve(0)
        self.refuse("train", "recipe.yaml", "--set", "embedding.mode=synchronous", "--set", "embedding.staleness=2",
                    says="never stale")
        self.refuse("train", "recipe.yaml", "--set", "data.categorical=[{name: usr, width: 8}]", *LOCAL, says="user")
        self.train("short", *LOCAL, "--set", "train.steps=2", "--set", "train.checkpoint_folder=saved")
        self.refuse("train", "recipe.yaml", *LOCAL, "--from", "saved", says="--resume saved")
        self.refuse("train", "recipe.yaml", *LOCAL, "--set", "model.kind=dlmr", says=["deep_wide", "'dlrm'"])
        self.refuse("embed-server", "recipe.yaml", "--shard", "2", "--folder", "rows", says="--shard")
        self.refuse("embed-server", "recipe.yaml", "--shard", "0", "--folder", "rows-0", says="folder")
        self.refuse("train", "recipe.yaml", "--set", "train.seed=2", "--set", "embedding.servers=['unix:a.sock']",
                    says="recipe")
        log = self.folder / "clicks.tsv"
        lines = log.read_text().splitlines()
        lines[3] = "1\tnone\tu1\tw1"
        log.write_text("\n".join(lines))
        self.refuse("train", "recipe.yaml", *LOCAL, says=["clicks.tsv:4", "price"])


if __name__ == "__main__":
    unittest.main()
