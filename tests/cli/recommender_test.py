"""Tests recommenders end to end: local rows, rows on servers that are killed, resuming,
refusals."""

import json
import os
import random
import resource
import signal
import time
import unittest

from strata_program import ProgramTest, free_ports, size_of, text_of

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

    def serve(self, shard, *arguments, folder="rows"):
        server = self.start("embed-server", "recipe.yaml", "--shard", str(shard), "--folder", f"{folder}-{shard}",
                            *arguments)
        self.servers[shard] = server
        line = server.stdout.readline()
        self.assertIn(f"embed-server shard {shard} of 2", line, server.stderr.read() if not line else "")
        return line

    def train(self, name, *arguments):
        self.succeed("train", "recipe.yaml", "--metrics", name, *arguments)
        return [line["loss_hex"] for line in self.metrics(name)]

    def test_servers_match_bits_of_local_rows(self):
        for staleness in (1, 4):
            setting = ("--set", f"embedding.staleness={staleness}")
            for shard in (0, 1):
                self.serve(shard)
            remote = self.train(f"remote-{staleness}", *setting)
            self.assertEqual(len(remote), 40)
            self.assertEqual(remote, self.train(f"local-{staleness}", *LOCAL, *setting))
            self.tearDown()

    def test_restarted_server_applies_every_update_once(self):
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

    def test_resumed_run_keeps_optimizer_of_checkpoint(self):
        saving = ("--set", "train.checkpoint_folder=saved")
        other = ("--set", "train.optimizer.beta2=0.95")  # not the default of recommenders
        whole = self.train("whole", *LOCAL, *other)
        self.assertEqual(self.train("first", *LOCAL, *saving, *other, "--set", "train.steps=20"), whole[:20])
        second = self.train("second", *LOCAL, *saving, "--resume", "saved/step-00000020")
        self.assertEqual(second[-20:], whole[20:])
        given = self.train("given", *LOCAL, "--resume", "saved/step-00000020", "--set", "train.optimizer.beta2=0.5")
        self.assertNotEqual(given[-20:], whole[20:])

    def ask(self, address, question):
        return self.succeed("embed-server", "--ask", question, "--listen", address)

    def test_resumed_run_equals_uninterrupted_run_at_staleness_5(self):
        late = ("--set", "embedding.staleness=5", "--set", "mesh.dp=2")
        saving = ("--set", "train.checkpoint_folder=saved")
        for shard in (0, 1):
            self.serve(shard, *late)
        whole = self.train("whole", *late)
        digests = [json.loads(self.ask(f"unix:{name}.sock", "digest 40"))["digest"] for name in "ab"]
        self.tearDown()
        for shard in (0, 1):
            self.serve(shard, *late, folder="fresh")
        first = self.train("first", *late, *saving, "--set", "train.steps=20")
        self.assertEqual(first, whole[:20])
        second = self.train("second", *late, *saving, "--resume", "saved")
        self.assertEqual(second[-20:], whole[20:])
        self.assertEqual(
            [json.loads(self.ask(f"unix:{name}.sock", "digest 40"))["digest"] for name in "ab"], digests)
        # Local rows with other shards start from the same checkpoint and are equal, too.
        self.assertEqual(self.train("local", *LOCAL, *late, *saving, "--set", "train.checkpoint_folder=here",
                                    "--set", "train.steps=20"), whole[:20])
        self.assertEqual(self.train("local-rest", *late, "--set", "embedding.servers=[local]", "--set",
                                    "embedding.shards=3", "--resume", "here")[-20:], whole[20:])
        # Three servers start with the rows of two.
        self.tearDown()
        (self.folder / "recipe.yaml").write_text(RECIPE.replace("'unix:b.sock'", "'unix:b.sock', 'unix:c.sock'"))
        for shard in (0, 1):
            self.remove_beyond(20, self.folder / f"fresh-{shard}")
        for shard in (0, 1, 2):
            self.servers[shard] = self.start("embed-server", "recipe.yaml", "--shard", str(shard), "--folder",
                                             f"three-{shard}", "--from", "fresh-0", "--from", "fresh-1", *late)
            self.assertIn("version 20", self.servers[shard].stdout.readline())
        self.assertEqual(self.train("three", *late, "--resume", "saved/step-00000020")[-20:], whole[20:])

    def remove_beyond(self, version, folder):
        for path in folder.glob("rows-*.snapshot"):
            if int(path.name.split("-")[1].split(".")[0]) > version:
                path.unlink()

    def test_trainer_killed_at_random_moments_trains_equal_losses(self):
        kills = int(os.environ.get("STRATA_KILLS", "3"))
        steps = 400 + 40 * kills
        setting = ("--set", "embedding.staleness=5", "--set", f"train.steps={steps}")
        saving = ("--set", "train.checkpoint_folder=saved", "--set", "train.checkpoint_every=15")
        for shard in (0, 1):
            self.serve(shard)
        draw = random.Random(5)
        metrics = self.folder / "killed"
        longest, target = 0, 0

        def done():
            return sum(line.endswith("}") for line in text_of(metrics).splitlines())

        def written():
            try:
                return metrics.stat().st_mtime_ns
            except FileNotFoundError:
                return 0

        def saved():
            return [path for path in (self.folder / "saved").glob("step-*/manifest.json")
                    if not path.parent.name.endswith(".partial")]

        for kill in range(kills):
            began, before = time.time(), written()
            resume = ("--resume", "saved") if saved() else ()
            training = self.start("train", "recipe.yaml", "--metrics", "killed", *setting, *saving, *resume)
            target = max(target, done()) + draw.randrange(1, 40)
            # Some kills come at any time, even before the run has started.
            deadline = began + (draw.uniform(0, 2) if kill % 4 == 3 else 100)
            while training.poll() is None and done() < min(target, steps - 10) and time.time() < deadline:
                if before >= 0 and written() not in (0, before):
                    before, longest = -1, max(longest, time.time() - began)
                time.sleep(0.005)
            # without a checkpoint, a run restarts from first values
            while not saved() and training.poll() is None:
                time.sleep(0.002)
            if training.poll() is not None:
                self.fail(f"it ended by itself: {training.communicate()}")
            training.send_signal(signal.SIGKILL)
            training.communicate()
        killed = self.train("killed", *setting, *saving, "--resume", "saved")
        digests = [json.loads(self.ask(f"unix:{name}.sock", f"digest {steps}"))["digest"] for name in "ab"]
        self.tearDown()
        for shard in (0, 1):
            self.serve(shard, folder="undisturbed")
        self.assertEqual(killed, self.train("undisturbed", *setting))
        self.assertEqual(
            digests, [json.loads(self.ask(f"unix:{name}.sock", f"digest {steps}"))["digest"] for name in "ab"])
        print(f"{kills} kills of the trainer, longest time to the first step again {longest:.2f} s")

    # A checkpoint of some megabytes takes longer than the steps between two checkpoints, and
    # servers keep two versions: at every moment one of them must belong to a complete checkpoint.
    def test_servers_hold_rows_of_complete_checkpoint_at_any_moment(self):
        for shard in (0, 1):
            self.serve(shard)
        training = self.start("train", "recipe.yaml", "--set", "train.checkpoint_folder=saved", "--set",
                              "train.checkpoint_every=1", "--set", "train.steps=25", "--set", "model.top=[2000, 1000]")

        def whole():
            return {int(path.parent.name.removeprefix("step-")) for path in self.folder.glob("saved/step-*/manifest.json")
                    if path.parent.name.removeprefix("step-").isdigit()}

        seen = set()
        while training.poll() is None:
            before = whole()
            kept = [{int(path.name.split("-")[1].split(".")[0]) for path in self.folder.glob(f"rows-{shard}/rows-*.snapshot")}
                    for shard in (0, 1)]
            checkpoints = before | whole()
            if checkpoints != before:
                seen |= checkpoints
                continue  # the saved rows may be those of any later moment
            for shard in (0, 1):
                self.assertTrue(not before or checkpoints & kept[shard],
                                f"checkpoints {sorted(checkpoints)}, rows {sorted(kept[shard])}")
            seen |= checkpoints
        self.assertEqual(training.wait(), 0, training.communicate())
        self.assertGreater(len(seen), 5)

    def test_replica_follows_server(self):
        for shard in (0, 1):
            self.serve(shard)
        following = ("--follow", "unix:a.sock", "--listen", "unix:replica.sock")
        self.refuse("embed-server", "recipe.yaml", "--shard", "0", "--folder", "copy-0", *following[:2],
                    says="--listen")
        replica = self.start("embed-server", "recipe.yaml", "--shard", "0", "--folder", "copy-0", *following)
        self.servers["replica"] = replica
        self.assertIn("follows unix:a.sock", replica.stdout.readline())
        self.train("metrics")
        digest = self.ask("unix:a.sock", "digest 40")
        self.assertEqual(self.ask("unix:replica.sock", "digest 40"), digest)
        health = self.ask("unix:replica.sock", "health").splitlines()
        self.assertEqual(health[0], "SERVING")
        self.assertEqual(json.loads(health[1])["lag"], 0)
        self.assertEqual(self.ask("unix:a.sock", "health").splitlines(), ["SERVING"])
        self.assertIn("strata_embed_lag_updates 0\n", self.ask("unix:replica.sock", "metrics"))
        own = [i for i in range(12)  # the others belong to the other server
               if self.run_program("embed-server", "--ask", f"rows user {i}", "--listen", "unix:a.sock")[0] == 0]
        self.assertTrue(1 < len(own) < 12)
        rows = f"rows user {own[0]} {own[1]}"
        self.assertEqual(self.ask("unix:replica.sock", rows), self.ask("unix:a.sock", rows))
        self.refuse("train", "recipe.yaml", "--set", "embedding.servers=['unix:replica.sock', 'unix:b.sock']",
                    says=["replica", "unix:a.sock"])
        replica.kill()
        replica.communicate()
        self.servers[0].kill()  # only the replica answers now
        self.servers[0].communicate()
        replica = self.start("embed-server", "recipe.yaml", "--shard", "0", "--folder", "copy-0", *following)
        self.servers["replica"] = replica
        self.assertIn("version 40", replica.stdout.readline())
        self.assertEqual(self.ask("unix:replica.sock", "digest"), digest)
        self.assertFalse(json.loads(self.ask("unix:replica.sock", "lag"))["following"])
        self.serve(0)
        self.refuse("embed-server", "recipe.yaml", "--shard", "1", "--folder", "copy-1", "--follow", "unix:a.sock",
                    "--listen", "unix:other.sock", says="shard 0 of 2")
        self.refuse("embed-server", "recipe.yaml", "--shard", "0", "--folder", "copy-2", "--follow", "unix:a.sock",
                    "--listen", "unix:other.sock", "--set", "train.seed=9", says="recipe")

    def test_ask_answers_in_json_and_refuses_unknown_questions(self):
        for shard in (0, 1):
            self.serve(shard)
        self.train("metrics")
        sizes = json.loads(self.ask("unix:a.sock", "sizes"))
        self.assertEqual([table["feature"] for table in sizes], ["user", "words"])
        self.assertEqual(sorted(sizes[0]), ["bytes", "cold_bytes", "cold_rows", "feature", "rows"])
        hot = json.loads(self.ask("unix:a.sock", 'hot "user" 3'))
        self.assertEqual(sorted(hot), ["cold_rows", "cold_updates", "ids", "rows", "updates"])
        self.assertEqual((hot["rows"], len(hot["ids"])), (sizes[0]["rows"], 3))
        self.assertEqual(sorted(hot["ids"][0]), ["id", "tier", "updates"])
        one = hot["ids"][0]["id"]
        row = json.loads(self.ask("unix:a.sock", f"row user {one}"))
        self.assertEqual(sorted(row), ["candidate", "feature", "hits", "id", "last_update", "state", "there", "tier",
                                       "value"])
        self.assertEqual((row["feature"], row["id"], row["hits"], row["tier"], row["there"]),
                         ("user", one, hot["ids"][0]["updates"], "memory", True))
        self.assertEqual(json.loads(self.succeed("row", "unix:a.sock", "user", str(one), "--json")), row)
        self.assertIn("hits     ", self.succeed("row", "unix:a.sock", "user", str(one)))
        both = json.loads(self.ask("unix:a.sock", f"rows user {one} {hot['ids'][1]['id']}"))
        self.assertEqual((both["version"], both["rows"][0]), (40, row["value"]))
        self.assertEqual([len(each) for each in both["rows"]], [8, 8])
        self.assertEqual(sorted(json.loads(self.ask("unix:a.sock", "digest 40"))), ["digest", "version"])
        self.assertNotEqual(self.ask("unix:a.sock", "run"), "0\n")
        self.assertEqual(self.ask("unix:a.sock", "lag"), "\n")
        for question in ("", "metric", "row", "row user", "row user x", "row user -1",
                         "row user 99999999999999999999", "hot user", "digest x", "rows user 1,2"):
            self.refuse("embed-server", "--ask=" + question, "--listen", "unix:a.sock",
                        says=["[cli.", "expected", "got", "fix"])
        self.refuse("embed-server", "--ask", "hot nobody 3", "--listen", "unix:a.sock", says="[embed.ask]")

    def test_question_for_future_version_ends_with_last_trainer(self):
        for shard in (0, 1):
            self.serve(shard)
        none = ("embed-server", "--ask", "digest 999999999", "--listen", "unix:a.sock")
        self.refuse(*none, says=["no trainer is connected", "version 0"])
        training = self.start("train", "recipe.yaml", "--metrics", "m.jsonl", "--set", "train.steps=1000000")
        metrics = self.folder / "m.jsonl"
        while training.poll() is None and size_of(metrics) == 0:
            time.sleep(0.01)
        asking = self.start(*none)
        self.assertIn("unix:a.sock has no answer to 'digest 999999999' yet", asking.stderr.readline())
        training.kill()
        self.assertIn("no trainer is connected", asking.communicate(timeout=30)[1])
        self.assertEqual(asking.returncode, 2)

    def test_log_without_checkpoints_stays_within_limit(self):
        setting = ("--set", "embedding.log_limit=200KiB", "--set", "train.steps=300")
        for shard in (0, 1):
            self.serve(shard, *setting)
        losses = self.train("limited", *setting)
        for shard in (0, 1):
            self.assertLess(sum(path.stat().st_size for path in (self.folder / f"rows-{shard}").iterdir()), 500 << 10)
            # The previous one stays as long as the trainer may request its versions again.
            self.assertIn(len(list((self.folder / f"rows-{shard}").glob("base-*.snapshot"))), (1, 2))
        self.assertIn("strata_embed_log_snapshots_total", self.ask("unix:a.sock", "metrics"))
        self.assertEqual(losses, self.train("again", *setting))  # no checkpoints are in the way

    def test_full_disk_of_server_is_one_error_and_loses_no_update(self):
        def small_files():
            # writes fail, as on a full disk
            resource.setrlimit(resource.RLIMIT_FSIZE, (150 << 10, 150 << 10))

        setting = ("--set", "train.steps=200")
        self.serve(1)
        self.servers[0] = self.start("embed-server", "recipe.yaml", "--shard", "0", "--folder", "rows-0",
                                     preexec_fn=small_files)
        self.assertIn("shard 0 of 2", self.servers[0].stdout.readline())
        training = self.start("train", "recipe.yaml", "--metrics", "full", *setting)
        out, err = self.servers[0].communicate(timeout=100)
        self.assertEqual(self.servers[0].returncode, 3, err)
        self.assertEqual(len([line for line in err.splitlines() if line.startswith("[embed.")]), 1, err)
        self.assertIn("updates-", err)
        out, err = training.communicate(timeout=200)
        self.assertEqual(training.returncode, 3, err)
        # There is space again. All earlier updates are complete, and no partial one remains.
        self.assertRegex(self.serve(0), r"version [1-9]\d* from snapshot 0")
        self.assertEqual(self.train("room", *setting), self.train("local", *LOCAL, *setting))

    def test_killed_trainer_resumes_from_checkpoint(self):
        for shard in (0, 1):
            self.serve(shard)
        saving = ("--set", "train.checkpoint_folder=saved", "--set", "train.checkpoint_every=15")
        training = self.start("train", "recipe.yaml", "--metrics", "killed", *saving, "--set", "train.steps=4000")
        deadline = time.time() + 100
        while not list(self.folder.glob("saved/step-????????/manifest.json")) and time.time() < deadline:
            time.sleep(0.01)
        training.send_signal(signal.SIGKILL)
        training.communicate()
        self.assertTrue((self.folder / "saved").exists())
        steps = max(int(path.name.split("-")[1]) for path in (self.folder / "saved").glob("step-*")
                    if not path.name.endswith("partial"))
        self.train("killed", *saving, "--resume", "saved", "--set", f"train.steps={steps + 20}")
        # The metrics contain the lines of the previous run up to its checkpoint.
        self.assertEqual([line["loss_hex"] for line in self.metrics("killed")],
                         self.train("whole", *LOCAL, "--set", f"train.steps={steps + 20}"))

    def test_refuses_second_run_by_name_and_first_continues(self):
        for shard in (0, 1):
            self.serve(shard)
        setting = ("--set", "train.steps=600")
        first = self.start("train", "recipe.yaml", "--metrics", "first", *setting)
        self.await_steps("first")
        self.refuse("train", "recipe.yaml", says=["[embed.lease]", f"process {first.pid}, since ", os.uname().nodename])
        out, err = first.communicate(timeout=200)
        self.assertEqual(first.returncode, 0, out + err)
        self.assertEqual(self.losses("first"), self.train("undisturbed", *LOCAL, *setting))
        # The next run need not wait.
        self.train("next")

    def test_refuses_other_user_of_machine(self):
        recipe = RECIPE.replace("unix:a.sock", "127.0.0.1:{}").replace("unix:b.sock", "127.0.0.1:{}")
        ports = free_ports(2)
        (self.folder / "recipe.yaml").write_text(recipe.replace("{}", str(ports[0]), 1).replace("{}", str(ports[1]), 1))
        for shard in (0, 1):
            self.serve(shard)
        secret = self.folder / "config/strata/secret"
        self.assertEqual(secret.stat().st_mode & 0o777, 0o600)
        ask = ("embed-server", "--listen", f"127.0.0.1:{ports[0]}", "--ask")
        self.succeed(*ask, "digest")
        mine = dict(self.environment)
        self.environment["XDG_CONFIG_HOME"] = str(self.folder / "another-user")
        for other in (("train", "recipe.yaml"), ("train", "recipe.yaml", "--set", "train.seed=5"), (*ask, "digest"),
                      ("row", f"127.0.0.1:{ports[0]}", "user", "1"),
                      ("embed-server", "recipe.yaml", "--shard", "0", "--folder", "copy", "--follow",
                       f"127.0.0.1:{ports[0]}", "--listen", "unix:copy.sock")):
            reported = self.refuse(*other, says=["[embed.secret]", "STRATA_SECRET"])
            self.assertNotIn("fingerprint", reported)
            self.assertNotIn(secret.read_text().strip(), reported)
        # With the secret that user is accepted; processes of `launch` have the user's secret.
        self.environment["STRATA_SECRET"] = secret.read_text().strip()
        self.assertEqual(json.loads(self.succeed(*ask, "digest"))["version"], 0)
        self.environment = mine
        self.succeed("launch", "-n", "2", "--", "train", "recipe.yaml", "--metrics", "launched", "--set", "mesh.pp=2")

    def test_trainer_that_ends_before_first_checkpoint_restarts(self):
        def small_files():
            # writes fail, as on a full disk
            resource.setrlimit(resource.RLIMIT_FSIZE, (2 << 10, 2 << 10))

        for shard in (0, 1):
            self.serve(shard)
        saving = ("--set", "train.checkpoint_folder=saved", "--set", "train.checkpoint_every=10")
        training = self.start("train", "recipe.yaml", *saving, preexec_fn=small_files)
        out, err = training.communicate(timeout=200)
        self.assertEqual(training.returncode, 3, out + err)
        self.assertEqual(list((self.folder / "saved").glob("step-*/manifest.json")), [])
        self.assertTrue(list((self.folder / "rows-0").glob("rows-*.snapshot")), "servers had saved rows")
        self.refuse("train", "recipe.yaml", says=["saved rows of another run", "--resume"])
        self.refuse("train", "recipe.yaml", "--set", "train.checkpoint_folder=other", says="another run")
        losses = self.train("anew", *saving)
        self.assertEqual(losses, self.train("local", *LOCAL))
        self.assertFalse((self.folder / "saved/runs-without-checkpoint.json").exists())

    def test_reports_name_of_unreachable_server(self):
        training = self.start("train", "recipe.yaml", "--metrics", "waits")
        line = training.stderr.readline()
        while line and "waiting" not in line:
            line = training.stderr.readline()
        self.assertRegex(line, r"waiting for the server of rows at unix:[ab]\.sock until \d\d:\d\d:\d\d")
        for shard in (0, 1):
            self.serve(shard)
        out, err = training.communicate(timeout=200)
        self.assertEqual(training.returncode, 0, err)
        self.assertLessEqual(err.count("waiting"), 1, "once a server")

    def test_signal_ends_run_that_waits_for_server(self):
        training = self.start("train", "recipe.yaml")
        line = training.stderr.readline()
        while line and "waiting" not in line:
            line = training.stderr.readline()
        training.send_signal(signal.SIGINT)
        out, err = training.communicate(timeout=30)  # otherwise it would wait for a minute
        self.assertEqual(training.returncode, 3, err)
        self.assertIn("was stopped while it waited for the server of rows", err)

    def test_server_ends_only_at_signals(self):
        for shard in (0, 1):
            self.serve(shard)
        self.servers[0].send_signal(signal.SIGUSR2)
        self.ask("unix:a.sock", "metrics")
        self.servers[0].send_signal(signal.SIGTERM)
        out, err = self.servers[0].communicate(timeout=20)
        self.assertEqual(self.servers[0].returncode, 0, err)

    def test_saved_rows_are_neither_reset_nor_replayed(self):
        for shard in (0, 1):
            self.serve(shard)
        saving = ("--set", "train.checkpoint_folder=saved", "--set", "train.steps=10")
        self.train("first", *saving)
        before = self.succeed("embed-server", "--ask", "digest 10", "--listen", "unix:a.sock")
        self.refuse("train", "recipe.yaml", says=["saved rows of another run", "--resume"])
        self.succeed("verify", "recipe.yaml")
        self.refuse("verify", "recipe.yaml", "--resume", "saved", says="on servers")
        self.assertEqual(before, self.succeed("embed-server", "--ask", "digest 10", "--listen", "unix:a.sock"))

    def test_server_answers_questions(self):
        for shard in (0, 1):
            self.serve(shard)
        self.train("metrics")
        answers = [self.succeed("embed-server", "--ask", "digest 40", "--listen", f"unix:{name}.sock")
                   for name in "ab"]
        self.assertTrue(all("digest" in answer for answer in answers), answers)
        self.assertIn("strata", self.succeed("embed-server", "--ask", "metrics", "--listen", "unix:a.sock"))

    def test_row_prints_local_saved_and_remote_rows(self):
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
        rows = [self.succeed("row", "recipe.yaml", "user", str(number), "--json") for number in range(4)]
        self.assertEqual([json.loads(line)["there"] for line in rows], [False] * 4)
        shown = self.succeed("row", "saved", "user", "u7", "--text")
        self.assertIn("hits     ", shown)
        self.assertIn("tier     memory", shown)
        self.refuse("row", "saved", "usr", "1", says="'user'")
        self.refuse("row", "saved", "user", "u7", says="--text")
        self.refuse("row", "recipe.yaml", "user", "1", *LOCAL, says="checkpoint")
        self.refuse("row", "unix:a.sock", "user", "u7", "--text", says="number")

    def test_evaluates_checkpoint_again(self):
        out = self.succeed("train", "recipe.yaml", *LOCAL, "--set", "train.checkpoint_folder=saved", "--importance",
                           "--report", "report.html")
        for words in ("Feature importance", "user", "price"):
            self.assertIn(words, out)
        page = self.page("report.html")
        for title in ("Feature importance", "Hot ids of user", "Hot ids of words"):
            self.assertTrue(self.card(page, title)["table"]["rows"], title)
        options = ("--importance", "--hot-ids", "3", "--set", "train.micro_batch=16")
        again = self.succeed("evaluate", "saved", *options, "--json", "found.json")
        loss = next(line for line in out.splitlines() if line.startswith("loss"))
        self.assertIn(loss, again)
        found = json.loads((self.folder / "found.json").read_text())
        self.assertEqual([table["table"] for table in found["hot_ids"]], ["user", "words"])
        self.assertEqual([len(table["ids"]) for table in found["hot_ids"]], [3, 3])
        self.assertEqual({of["feature"] for of in found["importance"]}, {"price", "user", "words"})
        self.succeed("evaluate", "saved", *options, "--json", "again.json", "--set", "mesh.dp=2")
        self.assertEqual(found, json.loads((self.folder / "again.json").read_text()))
        # A run that has ended prints the same if it is resumed.
        self.assertIn(loss, self.succeed("train", "recipe.yaml", *LOCAL, "--resume", "saved", "--importance"))
        none = ("--set", "data.validation_fraction=0")
        self.refuse("evaluate", "saved", *none, says="no samples to evaluate on")
        self.refuse("train", "recipe.yaml", *LOCAL, *none, "--importance", "--metrics", "none.jsonl",
                    says=["--importance", "no samples"])
        self.assertFalse((self.folder / "none.jsonl").exists())

    def test_refuses_bad_settings_with_fixes(self):
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
