"""Tests `strata serve` of recommenders: scores have the bits of an evaluation, whatever else is in a forward pass."""

import concurrent.futures
import json
import math
import os
import random
import struct
import subprocess
import time
import unittest
import urllib.error
import urllib.request

import grpc_call
from model_server import Server
from strata_program import ProgramTest

RECIPE = """\
model: {kind: dlrm, bottom: [16, 8], top: [16]}
data:
  train: clicks.tsv
  label: click
  numeric: [price, {name: age, transform: log}]
  categorical:
    - {name: user, width: 8}
    - {name: words, width: 8, pool: mean, separator: ' '}
embedding: {optimizer: {kind: adagrad, learning_rate: 0.1}, shards: 2}
train: {steps: 20, mini_batch: 64, decay: constant, optimizer: {kind: adamw, learning_rate: 1e-2}, validation_samples: 0,
        checkpoint_folder: c}
mesh: {threads: 1}
"""
SAMPLES, HELD_OUT = 3000, 300
DCN = ("model.kind=dcn", "model.bottom=[]", "model.cross_layers=2", "model.batch_norm=all", "model.top=[24]")
DEEP_WIDE = ("model.kind=deep_wide", "model.bottom=[6, 20]", "model.batch_norm=all", "model.top=[24, 12]",
             "embedding.wire.rows=fp16", "embedding.precision=int8", "data.categorical=[{name: user, width: 8}, "
             "{name: words, width: 4, pool: sequence, last: 2, separator: ' '}]")


def overrides(fields):
    return [word for field in fields for word in ("--set", field)]


def floats(data):
    return list(struct.unpack(f"<{len(data) // 4}f", data))


def byte_elements(texts):
    return b"".join(struct.pack("<I", len(text.encode())) + text.encode() for text in texts)


def tensors(path):
    """Weights of a safetensors file, by name: (shape, values)."""
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8:8 + size])
    header.pop("__metadata__", None)
    return {name: (entry["shape"], floats(data[8 + size:][slice(*entry["data_offsets"])]))
            for name, entry in header.items()}


class ScoreServer(Server):
    """Logits are compared as floats that a JSON of doubles writes exactly."""

    def infer(self, columns, outputs=("logit",)):
        body = {"inputs": [{"name": name, "datatype": "FP64" if name == "price" or name == "age" else "BYTES",
                            "shape": [len(values)], "data": values} for name, values in columns.items()],
                "outputs": [{"name": name} for name in outputs]}
        answer = self.post("/v2/models/m/infer", body)
        return [output["data"] for output in answer["outputs"]]

    def logits(self, columns):
        return self.infer(columns)[0]

    def refusal(self, body, path="/v2/models/m/infer"):
        try:
            answer = self.post(path, body)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)["error"]
        raise AssertionError(f"it was not refused: {answer}")


class ServeRecommender(ProgramTest):
    def setUp(self):
        super().setUp()
        (self.folder / "recipe.yaml").write_text(RECIPE)
        draw = random.Random(1)
        self.rows = []
        for _ in range(SAMPLES):
            user, words = draw.randrange(50), [draw.randrange(80) for _ in range(draw.randrange(4))]
            click = int(user % 7 + sum(words) % 5 > 4)
            price = "" if draw.random() < 0.1 else f"{draw.random() * 30:.3f}"
            self.rows.append((str(click), price, str(18 + draw.randrange(60)), f"u{user}",
                              " ".join(f"w{word}" for word in words)))
        lines = ["\t".join(row) for row in [("click", "price", "age", "user", "words"), *self.rows]]
        (self.folder / "clicks.tsv").write_text("\n".join(lines) + "\n")

    def train(self, *fields):
        self.succeed("train", "recipe.yaml", *overrides(fields))

    def serve(self, *arguments, checkpoint="c"):
        return ScoreServer(self, checkpoint, "--listen", "127.0.0.1:0", "--name", "m", *arguments)

    def held_out(self, first=0, count=HELD_OUT):
        """Columns of validation samples, as clients send them: null is a missing number."""
        rows = self.rows[SAMPLES - HELD_OUT:][first:first + count]
        return {"price": [float(row[1]) if row[1] else None for row in rows], "age": [float(row[2]) for row in rows],
                "user": [row[3] for row in rows], "words": [row[4] for row in rows]}

    def metrics_of(self, logits):
        """What an evaluation computes of logits: sums of whole multiples of 2^-50."""
        labels = [row[0] == "1" for row in self.rows[SAMPLES - HELD_OUT:]]

        def softplus(x):
            return max(x, 0.0) + math.log1p(math.exp(-abs(x)))

        losses = sum(round(softplus(-logit if label else logit) * 2.0**50) for logit, label in zip(logits, labels))
        clicks = sum(round(1 / (1 + math.exp(-logit)) * 2.0**50) for logit in logits)
        ones = [logit for logit, label in zip(logits, labels) if label]
        zeros = [logit for logit, label in zip(logits, labels) if not label]
        ordered = sum((one > zero) + (one == zero) / 2 for one in ones for zero in zeros)
        return {"log_loss": losses / 2.0**50 / HELD_OUT, "calibration": clicks / 2.0**50 / len(ones),
                "auc": ordered / (len(ones) * len(zeros))}

    def evaluation(self, checkpoint="c"):
        self.succeed("evaluate", checkpoint, "--json", "e.json")
        return json.loads((self.folder / "e.json").read_text())

    def test_scores_have_the_bits_of_an_evaluation_alone_and_in_any_batch(self):
        for number, fields in enumerate(((), DCN, DEEP_WIDE)):
            with self.subTest(fields):
                folder = f"c{number}"
                self.train(f"train.checkpoint_folder={folder}", *fields)
                server = self.serve("--batch", "300", "--batch-delay", "20", checkpoint=folder)
                whole = server.logits(self.held_out())
                expected, found = self.evaluation(folder), self.metrics_of(whole)
                self.assertEqual({name: expected[name] for name in found}, found)
                draw = random.Random(number)
                parts, first = [], 0
                while first < HELD_OUT:
                    parts.append((first, min(draw.choice((1, 1, 2, 3, 5, 17, 40)), HELD_OUT - first)))
                    first += parts[-1][1]
                with concurrent.futures.ThreadPoolExecutor(16) as pool:
                    together = list(pool.map(lambda part: server.logits(self.held_out(*part)), parts))
                self.assertEqual([logit for part in together for logit in part], whole)
                alone = [server.logits(self.held_out(sample, 1))[0] for sample in range(40)]
                self.assertEqual(alone, whole[:40])
                self.assertLess(server.metric("nv_inference_exec_count"), len(parts) + 41)
                code, out, err = server.end()
                self.assertEqual((code, err), (0, ""))
                self.assertIn(f"stopped   {len(parts) + 41} answers in ", out)

    def vector(self, feature, text):
        row = json.loads(self.succeed("row", "c", feature, text, "--text", "--json"))
        return row["value"]

    def test_scores_follow_from_the_files_of_the_checkpoint(self):
        """The net by hand, from weights, statistics and embeddings that other verbs show."""
        self.train()
        step = self.folder / "c" / "step-00000020"
        weights = tensors(step / "model.safetensors")
        price = json.loads((step / "preprocessing.json").read_text())["numeric"][0]

        def layer(name, x, relu=True):
            (out, width), matrix = weights[name + ".weight"]
            y = [sum(matrix[o * width + i] * x[i] for i in range(width)) + weights[name + ".bias"][1][o]
                 for o in range(out)]
            return [max(value, 0.0) for value in y] if relu else y

        columns = self.held_out(0, 6)
        logits = self.serve().logits(columns)
        for sample, logit in enumerate(logits):
            value = columns["price"][sample]
            x = [0.0 if value is None else (value - price["mean"]) / price["deviation"],
                 math.log1p(columns["age"][sample])]
            words = [self.vector("words", word) for word in columns["words"][sample].split()]
            vectors = [layer("bottom1", layer("bottom0", x)), self.vector("user", columns["user"][sample]),
                       [sum(each) / len(words) for each in zip(*words)] if words else [0.0] * 8]
            dots = [sum(a * b for a, b in zip(vectors[i], vectors[j])) for i in range(1, 3) for j in range(i)]
            self.assertAlmostEqual(layer("head", layer("top0", vectors[0] + dots), relu=False)[0], logit, 4)
        self.assertGreater(max(logits) - min(logits), 0.1)

    def test_json_bytes_and_grpc_give_the_same_scores(self):
        self.train()
        server = self.serve("--grpc-listen", "127.0.0.1:0")
        columns = self.held_out(5, 7)
        score, logit, *numbers = server.infer(columns, ("score", "logit", "version", "rows_version", "stale"))
        self.assertEqual(numbers, [[20], [20], [0]])
        for one, other in zip(score, logit):
            self.assertAlmostEqual(one, 1 / (1 + math.exp(-other)), 7)
        raw = {name: struct.pack("<7d", *(math.nan if value is None else value for value in values))
               if name in ("price", "age") else byte_elements(values) for name, values in columns.items()}
        head = json.dumps({"inputs": [{"name": name, "datatype": "BYTES" if name in ("user", "words") else "FP64",
                                       "shape": [7], "parameters": {"binary_data_size": len(data)}}
                                      for name, data in raw.items()],
                           "parameters": {"binary_data_output": True}}).encode()
        request = urllib.request.Request(f"http://{server.address}/v2/models/m/infer", head + b"".join(raw.values()),
                                         {"Inference-Header-Content-Length": str(len(head))})
        with urllib.request.urlopen(request, timeout=60) as answer:
            body, size = answer.read(), int(answer.headers["Inference-Header-Content-Length"])
        self.assertEqual(floats(body[size:]), score)
        message = grpc_call.field(1, "m") + b"".join(
            grpc_call.field(5, grpc_call.field(1, name) + grpc_call.field(3, [7]) + grpc_call.field(
                2, "FP64" if name in ("price", "age") else "BYTES")) for name in raw)
        message += b"".join(grpc_call.field(6, grpc_call.field(1, name)) for name in ("logit", "score"))
        message += b"".join(grpc_call.field(7, data) for data in raw.values())
        address = server.lines[0].split(" by gRPC at ")[1].split(": ")[0]
        answer = grpc_call.call(address, "/inference.GRPCInferenceService/ModelInfer", message)
        outputs = [value for number, value in grpc_call.fields(answer) if number == 6]
        self.assertEqual([floats(output) for output in outputs], [logit, score])
        one = {name: values[0] for name, values in self.held_out(0, 1).items() if values[0] is not None}
        if "price" in one:
            self.assertEqual(server.post("/v2/models/m/generate", one)["score"],
                             server.infer(self.held_out(0, 1), ("score",))[0][0])

    def test_requests_share_a_forward_pass(self):
        self.train()
        server = self.serve("--batch", "8", "--batch-delay", "10000")
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            logits = list(pool.map(lambda sample: server.logits(self.held_out(sample, 1))[0], range(8)))
        self.assertEqual(server.metric("nv_inference_exec_count"), 1)
        self.assertEqual(server.metric("nv_inference_request_success"), 8)
        self.assertEqual(server.logits(self.held_out(0, 8)), logits)
        self.assertEqual(server.get("/v2/health/ready"), "")
        self.assertIn("ok", server.get("/health"))
        self.assertIn("version", server.get("/version"))
        self.assertEqual(server.end()[0], 0)

    def test_states_its_columns_and_refuses_other_requests(self):
        self.train()
        server = self.serve("--batch", "4")
        model = json.loads(server.get("/v2/models/m"))
        self.assertEqual(model["platform"], "strata_recommender")
        self.assertEqual([(tensor["name"], tensor["datatype"], tensor["shape"]) for tensor in model["inputs"]],
                         [("price", "FP64", [-1]), ("age", "FP64", [-1]), ("user", "BYTES", [-1]), ("words", "BYTES", [-1])])
        self.assertEqual([(tensor["name"], tensor["datatype"]) for tensor in model["outputs"]],
                         [("score", "FP32"), ("logit", "FP32"), ("version", "INT64"), ("rows_version", "INT64"),
                          ("stale", "INT64")])

        def request(**changes):
            columns = dict(self.held_out(0, 2), **changes)
            return {"inputs": [{"name": name, "shape": [len(values)], "data": values, "datatype":
                                "FP64" if name in ("price", "age") else "BYTES"}
                               for name, values in columns.items() if values is not None]}
        for body, words in ((request(price=[1.5]), "tensor 'age' has the shape [2], and 'price' has [1]"),
                            (request(words=None), "tensor 'words' is missing"),
                            (request(colour=["red", "red"]), "tensor 'colour' is no input of the model; it has price, age"),
                            (request(price=[1.0, 1e39]), "sample 2, column 'price'"),
                            (request(price=["1", "2"]), "tensor 'price' is FP64"),
                            ({**request(), "parameters": {"priority": 1}}, "'priority' is not supported"),
                            ({**request(), "outputs": [{"name": "row"}]}, "tensor 'row' is no output")):
            code, message = server.refusal(body)
            self.assertEqual(code, 400)
            self.assertIn(words, message)
        five = {name: values * 3 for name, values in self.held_out(0, 2).items()}
        self.assertIn("has 6 samples; a request has at most 4", server.refusal(request(**five))[1])
        self.assertEqual(server.refusal(request(), "/v2/models/other/infer")[0], 404)
        self.assertEqual(len(server.logits(self.held_out(0, 2))), 2)

    def test_a_server_follows_a_run_without_losing_a_request(self):
        self.train()
        columns = self.held_out(0, 30)
        first = self.serve().logits(columns)
        server = self.serve("--follow", "0.1")
        training = self.start("train", "recipe.yaml", "--resume", "c", "--set", "train.steps=40")
        answers, deadline = [], time.time() + 60
        while time.time() < deadline and not (answers and answers[-1][1] == [40]):
            with concurrent.futures.ThreadPoolExecutor(4) as pool:
                answers += pool.map(lambda _: server.infer(columns, ("logit", "version")), range(4))
        self.assertEqual(training.wait(timeout=60), 0)
        later = self.serve().logits(columns)
        self.assertNotEqual(later, first)
        for logits, version in answers:
            self.assertEqual(logits, {20: first, 40: later}[version[0]])
        self.assertEqual({version[0] for _, version in answers}, {20, 40})
        self.assertIn("promoted  c/step-00000040", server.end()[1])

    def test_keeps_its_checkpoint_if_a_later_one_is_damaged_or_of_another_model(self):
        self.train()
        self.train("train.checkpoint_folder=other", "train.steps=30", "model.top=[12]")
        self.train("train.checkpoint_folder=later", "train.steps=40")
        server = self.serve("--follow", "0.1")
        for source, words in (("other/step-00000030", "of another model"), ("later/step-00000040", "rows")):
            (self.folder / source).rename(self.folder / "c" / source.split("/")[1])
            if source.startswith("other"):
                for shard in (0, 1):
                    os.link(self.folder / f"other/rows/shard-{shard}" / self.snapshot(30),
                            self.folder / f"c/rows/shard-{shard}" / self.snapshot(30))
            refusal = [server.process.stdout.readline()]
            while not refusal[-1].startswith("  fix"):
                refusal.append(server.process.stdout.readline())
            self.assertRegex(refusal[0], "^refused   .*" + words)
            self.assertEqual(server.infer(self.held_out(0, 1), ("version",)), [[20]])
        self.assertEqual(server.end()[0], 0)

    def snapshot(self, version):
        names = [path.name for path in (self.folder / "other/rows/shard-0").iterdir()]
        return next(name for name in names if str(version) in name)

    def start_rows(self, shard, name, *arguments):
        """A started server of embeddings, or with --follow a replica."""
        server = self.start("embed-server", "recipe.yaml", "--shard", str(shard), "--folder", f"rows-{name}", "--listen",
                            f"unix:{name}.sock", *overrides(["embedding.servers=['unix:a.sock', 'unix:b.sock']"]), *arguments)
        line = server.stdout.readline()
        self.assertIn(f"embed-server shard {shard} of 2", line, server.stderr.read() if not line else "")
        return server

    def replicas(self, version):
        started = [self.start_rows(shard, name, "--follow", f"unix:{primary}.sock")
                   for shard, (name, primary) in enumerate((("c", "a"), ("d", "b")))]
        deadline = time.time() + 60
        for name in "cd":
            while time.time() < deadline:
                code, out, _ = self.run_program("embed-server", "--ask", "lag", "--listen", f"unix:{name}.sock")
                if code == 0 and json.loads(out)["version"] == version:
                    break
                time.sleep(0.05)
        return started

    def end_all(self, servers):
        for server in servers:
            server.kill()
            server.wait()

    @staticmethod
    def until_answered(call, seconds=60):
        """The connection to a server that has come back may take some seconds."""
        deadline = time.time() + seconds
        while True:
            try:
                return call()
            except urllib.error.HTTPError as error:
                if error.code != 503 or time.time() > deadline:
                    raise
                time.sleep(0.1)

    def test_embeddings_come_from_servers_and_replicas_that_are_not_too_stale(self):
        columns, numbers = self.held_out(0, 25), ("version", "rows_version", "stale")
        remote = ("embedding.servers=['unix:a.sock', 'unix:b.sock']",)
        of_replicas = overrides(["embedding.servers=['unix:c.sock', 'unix:d.sock']"])
        self.train("train.checkpoint_folder=local")
        expected = self.serve(checkpoint="local").logits(columns)
        primaries = [self.start_rows(shard, name) for shard, name in enumerate("ab")]
        self.train(*remote)
        server = self.serve()
        self.assertEqual(server.infer(columns, ("logit", *numbers)), [expected, [20], [20], [0]])
        replicas = self.replicas(20)
        server = self.serve(*of_replicas)
        self.assertEqual(server.infer(columns, ("logit", *numbers)), [expected, [20], [20], [0]])
        # The replicas miss the updates of the next steps, and then their primaries.
        self.end_all(replicas)
        self.succeed("train", "recipe.yaml", "--resume", "c", *overrides([*remote, "train.steps=40"]))
        self.end_all(primaries)
        replicas = self.replicas(20)
        late = self.serve(*of_replicas, "--stale", "20")
        self.assertEqual(late.infer(columns, numbers), [[40], [20], [20]])
        strict = self.serve(*of_replicas, "--stale", "19")
        body = {"inputs": [{"name": name, "shape": [1], "data": values[:1], "datatype":
                            "FP64" if name in ("price", "age") else "BYTES"} for name, values in columns.items()]}
        self.assertEqual(strict.refusal(body), (503, "embeddings lack 20 updates; the server allows 19"))
        self.end_all(replicas[:1])
        code, message = late.refusal(body)
        self.assertEqual(code, 503)
        self.assertIn("c.sock", message)
        self.start_rows(0, "c", "--follow", "unix:a.sock")
        self.assertEqual(self.until_answered(lambda: late.infer(columns, numbers)), [[40], [20], [20]])

    def test_a_file_of_keys_limits_clients(self):
        self.train()
        (self.folder / "keys.yaml").write_text("keys:\n  - {name: a, key: sk-a}\n  - {name: b, key: sk-b, models: [x]}\n")
        server = self.serve("--keys", "keys.yaml")
        one = {"price": 1.0, "age": 30.0, "user": "u1", "words": "w1"}
        for headers, code in (({}, 401), ({"Authorization": "Bearer sk-b"}, 403)):
            with self.assertRaises(urllib.error.HTTPError) as refused:
                server.post("/v2/models/m/generate", one, **headers)
            self.assertEqual(refused.exception.code, code)
        with self.assertRaises(urllib.error.HTTPError) as refused:
            server.get("/metrics")
        self.assertEqual(refused.exception.code, 401)
        self.assertIn("score", server.post("/v2/models/m/generate", one, Authorization="Bearer sk-a"))

    def test_refuses_what_cannot_be_served(self):
        self.train()
        self.refuse("serve", "c", "--cache", "1MiB", says=["[cli.serve] --cache", "task 'text'", "task 'recommender'"])
        self.refuse("serve", "c", "--set", "mesh.device=cuda", says=["mesh.device", "mesh.device=cpu"])
        self.refuse("serve", "c", "--batch", "0", says="--batch")
        self.refuse("serve", "c/step-00000020", "--follow", "1", says=["--follow", "several"])
        (self.folder / "text.yaml").write_text(
            "model: {kind: gpt, layers: 1, width: 16, heads: 2, vocab: 256, context: 16}\n"
            "data: {train: text.txt, tokenizer: bytes}\ntrain: {steps: 1, mini_batch: 2, micro_batch: 2, checkpoint_folder: t}\n")
        self.succeed("train", "text.yaml")
        self.refuse("serve", "t", "--batch", "8", says=["[cli.serve] --batch", "task 'recommender'"])
        (self.folder / "c" / "rows").rename(self.folder / "gone")
        self.refuse("serve", "c", "--listen", "127.0.0.1:0", says="the rows of this checkpoint are not there")

    def test_a_program_for_text_alone_names_what_it_lacks(self):
        self.train()
        program = os.environ["STRATA_TEXT_SERVER"]
        refused = subprocess.run([program, "serve", "c"], cwd=self.folder, capture_output=True, text=True)
        self.assertEqual(refused.returncode, 2)
        self.assertRegex(refused.stderr, r"^\[task\.kinds\] c:.* this program was built without task 'recommender'")
        listed = subprocess.run([program, "serve", "--help"], capture_output=True, text=True, check=True).stdout
        self.assertIn("--cache", listed)
        self.assertNotIn("--batch-delay", listed)


if __name__ == "__main__":
    unittest.main()
