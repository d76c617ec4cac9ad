"""Tests `strata serve`: what clients get is what `strata generate` writes, alone or among others, on any mesh."""

import concurrent.futures
import json
import os
import pathlib
import re
import signal
import time
import unittest
import urllib.error

from model_server import WORDS, Server, ServerTest, events
from strata_program import free_ports


class Serve(ServerTest):
    def test_answers_have_the_text_of_generate(self):
        written = self.succeed("generate", "c", "--prompt", WORDS, "--tokens", "12", "--temperature", "0")
        server = self.serve()
        answer = server.complete()
        self.assertEqual(WORDS + answer["choices"][0]["text"], written.rstrip("\n"))
        self.assertEqual(answer["choices"][0]["finish_reason"], "length")
        self.assertEqual(answer["usage"], answer["usage"] | {"prompt_tokens": 16, "completion_tokens": 12,
                                                             "total_tokens": 28})
        connection, response = server.stream()
        chunks = events(response)
        connection.close()
        self.assertEqual(chunks.pop(), "[DONE]")
        self.assertEqual("".join(json.loads(chunk)["choices"][0]["text"] for chunk in chunks),
                         answer["choices"][0]["text"])
        self.assertEqual(len(chunks), 12)
        self.assertEqual(json.loads(server.get("/v1/models"))["data"][0]["id"], "tiny")
        self.assertIn("<html", server.get("/"))
        self.assertEqual(server.metric("strata_generation_tokens_total"), 24)
        code, out, err = server.end()
        self.assertEqual((code, err), (0, ""))
        self.assertIn("stopped", out)

    def test_answers_do_not_depend_on_other_requests_or_on_the_mesh(self):
        requests = [dict(prompt=WORDS[:1 + i % 16] + "word " * (i % 2), seed=i, temperature=1.0 if i % 2 else 0,
                         max_tokens=3 + i % 8, logprobs=2, echo=i % 3 == 0) for i in range(24)]

        def choices(server, threads):
            with concurrent.futures.ThreadPoolExecutor(threads) as pool:
                return [answer["choices"] for answer in pool.map(lambda fields: server.complete(**fields), requests)]

        alone = choices(self.serve("--set", "mesh.pp=1"), 1)
        for mesh in ([], ["--set", "mesh.pp=1", "--sequences", "3", "--pass-tokens", "7", "--guesses", "3"]):
            self.assertEqual(choices(self.serve(*mesh), 8), alone)
        # Tensor-parallel ranks add in another order: the same numbers on that mesh whatever runs beside.
        split = ["--set", "mesh.tp=2"]
        server = self.serve(*split)
        self.assertEqual(choices(server, 8), choices(server, 1))

    def test_answers_are_computed_in_the_precision_of_the_run(self):
        texts = {}
        for precision in ("fp32", "bf16", "fp16"):
            field = ("--set", f"train.precision={precision}")
            server = self.serve(*field)
            self.assertIn(f"gpt, {precision}, context", server.lines[0])
            texts[precision] = server.complete(logprobs=0)["choices"][0]
            self.assertEqual(server.end()[0], 0)
            written = self.succeed("generate", "c", "--prompt", WORDS, "--tokens", "12", "--temperature", "0", *field)
            self.assertEqual(WORDS + texts[precision]["text"], written.rstrip("\n"))
        scores = {precision: choice["logprobs"]["token_logprobs"] for precision, choice in texts.items()}
        for precision in ("bf16", "fp16"):
            self.assertNotEqual(scores[precision], scores["fp32"])
            self.assertLess(abs(scores[precision][0] - scores["fp32"][0]), 0.05)
        self.succeed("train", "recipe.yaml", "--set", "train.checkpoint_folder=c2", "--set", "train.precision=bf16")
        self.assertIn("gpt, bf16, context", Server(self, "c2", "--listen", "127.0.0.1:0").lines[0])

    SMALL = ("--cache", "512KiB", "--pass-tokens", "16")

    def plan(self, *arguments):
        text = self.succeed("plan", *arguments, "--serve", *self.SMALL, "--json", "plan.json")
        plan = json.loads((self.folder / "plan.json").read_text())
        return text, plan, max(stage["peak_bytes"] for stage in plan["stages"])

    def test_a_measurement_compares_meshes_and_precisions(self):
        quick = ("--measure", "page.html", "--measure-seconds", "0.2", "--sequences", "4", "--cache", "256KiB")
        out = self.succeed("serve", "c", *quick)
        page = self.page("page.html")
        table = self.card(page, "All numbers")["table"]
        rows = [dict(zip(["setting", *table["columns"][1:]], row)) for row in table["rows"]]
        settings = ["1 rank", "tp 2", "pp 2"] if os.cpu_count() > 1 else ["1 rank"]
        measured = {row["setting"] for row in rows}
        self.assertLessEqual({f"{mesh}, {weights}" for mesh in settings for weights in ("fp32", "bf16", "int8")}, measured)
        self.assertEqual([row["at once"] for row in rows], ["1", "4"] * len(measured))
        rates = [float(row["tokens a second"]) for row in rows]
        tile = page["tiles"][0]
        self.assertEqual(float(tile["value"]), max(rates))
        best = rows[rates.index(max(rates))]
        self.assertEqual(tile["note"], f"{best['setting']}, {best['at once']} at once")
        seconds = {column: [float(number) * {"s": 1, "ms": 1e-3, "us": 1e-6}[unit] for number, unit in
                            (row[column].split() for row in rows)] for column in ("first token", "next token")}
        for tile, column in zip(page["tiles"][1:], ("first token", "next token"), strict=True):
            self.assertEqual(tile["value"], rows[seconds[column].index(min(seconds[column]))][column])
        self.assertLess(sum(seconds["next token"]), sum(seconds["first token"]))
        units = {"KiB": 1, "MiB": 1024}
        memory = {row["setting"]: float(number) * units[unit] for row in rows for number, unit in [row["memory of a rank"].split()]}
        for mesh in settings:
            self.assertLess(memory[mesh + ", bf16"], memory[mesh + ", fp32"])
            self.assertIn(mesh + ", int8", memory)
            self.assertLessEqual(memory[mesh + ", fp32"], memory["1 rank, fp32"])
        bars = self.card(page, "Tokens a second")["bars"]
        self.assertEqual([row["name"] for row in bars], [row["setting"] for row in rows[::2]])
        self.assertEqual(max(bar["segments"][0]["percent"] for row in bars for bar in row["bars"]), 100)
        self.assertEqual(out.count(" at once: "), len(rows))
        self.assertRegex(out, r"(?m)^fastest   " + best["setting"] + r":.* --set mesh\.pp=\d --set mesh\.tp=\d --set train\.precision=(fp32|bf16)( --weights int8)?$")
        # Fields that the caller sets are not varied; what cannot be served is listed.
        one = self.succeed("serve", "c", *quick, "--set", "mesh.pp=1", "--set", "train.precision=fp32")
        self.assertIn("the mesh of the recipe, 1 at once", one)
        self.assertIn("the mesh of the recipe, int8, 1 at once", one)
        one = self.succeed("serve", "c", *quick, "--set", "mesh.pp=1", *self.INT8)
        self.assertIn("the mesh of the recipe, int8, 1 at once", one)
        self.assertEqual(one.count(" at once: "), 2)
        self.refuse("serve", "c", *quick, "--measure-prompt", "40", says=["no setting can be measured", "longer than the context"])
        self.refuse("serve", "c", *quick, "--listen", "127.0.0.1:0", says=["--measure", "--listen"])

    def test_answers_match_their_grammars(self):
        server = self.serve("--guesses", "3")
        for _ in range(2):  # the second one finds the compiled grammar
            self.assertRegex(server.text(structured_outputs={"regex": "[0-9]{4}"}), r"\A[0-9]{4}\Z")
        text = server.text(prompt="a", max_tokens=31, guided_json={
            "type": "object", "properties": {"a": {"type": "integer", "minimum": 0, "maximum": 9}},
            "required": ["a"], "additionalProperties": False})
        self.assertIn(json.loads(text), [{"a": digit} for digit in range(10)])
        with self.assertRaises(urllib.error.HTTPError) as refused:
            server.complete(structured_outputs={"regex": "(?=a)"})
        self.assertEqual(refused.exception.code, 400)

    def test_weights_off_the_device_give_the_same_answers(self):
        expected = self.serve().text()
        device = f"memory.device={self.plan('recipe.yaml', '--estimate', '--set', 'mesh.pp=1')[2] - 1}B"
        for memory, where in ((["memory.weights=host"], "4 of 6 layers off the device (4 on the host)"),
                              (["memory.weights=disk", "memory.disk.path=disk"], "(4 on the disk)"),
                              (["mesh.pp=1", device], "layers off the device")):
            server = self.serve(*self.SMALL, *(word for field in memory for word in ("--set", field)))
            self.assertIn("memory    weights of ", "\n".join(server.lines))
            self.assertIn(where, "\n".join(server.lines))
            self.assertEqual(server.text(), expected)
            self.assertEqual(server.end()[0], 0)
        self.assertFalse((self.folder / "disk").exists())

    INT8 = ("--weights", "int8")

    def test_int8_answers_have_the_text_of_generate_alone_among_others_and_on_every_tier(self):
        requests = [dict(prompt=WORDS[:1 + i % 16] + "word " * (i % 2), seed=i, temperature=1.0, max_tokens=3 + i % 8,
                         logprobs=2, echo=i % 3 == 0) for i in range(16)]

        def choices(server, threads):
            with concurrent.futures.ThreadPoolExecutor(threads) as pool:
                return [answer["choices"] for answer in pool.map(lambda fields: server.complete(**fields), requests)]

        written = self.succeed("generate", "c", "--prompt", WORDS, "--tokens", "12", "--temperature", "0", *self.INT8)
        server = self.serve(*self.INT8, "--set", "mesh.pp=1")
        self.assertIn(": gpt, fp32, weights int8, context 32", server.lines[0])
        self.assertEqual(WORDS + server.text(), written.rstrip("\n"))
        alone = choices(server, 1)
        fp32 = self.serve()
        self.assertNotEqual(choices(fp32, 1), alone)  # log probabilities of rounded weights
        self.assertEqual(server.complete()["system_fingerprint"], "step-00000008 int8")
        self.assertEqual(fp32.complete()["system_fingerprint"], "step-00000008")
        for more in (["--pass-tokens", "7", "--sequences", "3", "--guesses", "3"], ["--set", "memory.weights=host"],
                     ["--set", "memory.weights=disk", "--set", "memory.disk.path=disk"]):
            self.assertEqual(choices(self.serve(*self.INT8, *more), 8), alone)
        split = self.serve(*self.INT8, "--set", "mesh.tp=2")
        self.assertEqual(choices(split, 8), choices(split, 1))
        processes = self.serve(*self.INT8, launch=("-n", "2"))
        self.assertEqual(choices(processes, 8), alone)

    def test_a_plan_counts_int8_weights(self):
        plain = ("recipe.yaml", "--estimate", "--set", "mesh.pp=1", "--set", "memory.weights=host")
        text, fp32, _ = self.plan(*plain)
        self.assertNotIn("int8", text)
        text, int8, peak = self.plan(*plain, *self.INT8)
        self.assertIn("layers · fp32 · weights int8 · passes", text)
        self.assertEqual((fp32["weights"], int8["weights"]), ("precision", "int8"))
        # Rows of matrices [out, in]: 3 in bytes fewer, and a scale of 4 more.
        rows = [(96, 32), (32, 32), (128, 32), (32, 128)]
        saved = 4 * sum(out * (3 * inside - 4) for out, inside in rows)
        for name in ("host_bytes", "bytes_to_device"):
            self.assertEqual(fp32["stages"][0][name] - int8["stages"][0][name], saved)
        _, measured, _ = self.plan("c", *self.INT8)
        self.assertGreater(measured["prompt"]["seconds"], 0)
        budget = ("--set", "mesh.pp=1", "--set", f"memory.device={peak}B")
        server = self.serve(*self.SMALL, *self.INT8, *budget)
        self.assertEqual(server.text(), self.serve(*self.INT8).text())

    def test_refuses_int8_weights_where_nothing_computes_with_them(self):
        self.refuse("serve", "c", "--weights", "int9", says=["[cli.weights] --weights", "precision, int8", "'int8'"])
        self.refuse("generate", "c", "--weights", "q5", says=["[cli.weights]", "got       q5"])
        aten = ("--set", "train.primitives=aten")
        self.refuse("serve", "c", *self.INT8, *aten, says=["--weights int8: only Strata's own kernels", "primitives=own"])
        self.refuse("generate", "c", "--prompt", "a", *self.INT8, *aten, says="only Strata's own kernels")
        gpu = ("--set", "mesh.device=cuda")
        self.refuse("serve", "c", *self.INT8, *gpu, says=["only a CPU", "got       mesh.device=cuda", "mesh.device=cpu"])
        self.refuse("evaluate", "c", *self.INT8, *gpu, says="only a CPU")
        self.refuse("plan", "recipe.yaml", "--serve", "--machine", "h100", *self.INT8, *gpu, says="only a CPU")
        self.refuse("plan", "recipe.yaml", *self.INT8, says="--serve")
        self.refuse("serve", "c", *self.INT8, "--set", "train.precision=bf16", says=["computed in fp32", "got       bf16",
                                                                                    "--set train.precision=fp32"])

    def test_an_evaluation_prints_the_change_by_int8_weights(self):
        out = self.succeed("evaluate", "c", "--json", "fp32.json")
        fp32 = json.loads((self.folder / "fp32.json").read_text())
        self.assertNotIn("int8", out)
        self.assertNotIn("int8", fp32)
        out = self.succeed("evaluate", "c", *self.INT8, "--json", "both.json")
        both = json.loads((self.folder / "both.json").read_text())
        self.assertEqual(both["loss"], fp32["loss"])
        change = both["int8"]["loss"] - both["loss"]
        self.assertEqual(both["int8"]["change"], change)
        self.assertNotEqual(change, 0)
        self.assertLess(abs(change), 0.01)
        self.assertRegex(out, r"(?m)^int8     validation \d\.\d{4} nats a token, 0\.00\d\d (more|less); "
                              r"perplexity \d+\.\d{4} to \d+\.\d{4} \([+-]0\.\d{3} %\)$")
        for mesh in (["mesh.pp=1"], ["mesh.pp=3"], ["mesh.dp=2", "mesh.zero=3"], ["memory.weights=host"]):
            self.succeed("evaluate", "c", *self.INT8, "--json", "again.json", *(f"--set={field}" for field in mesh))
            again = json.loads((self.folder / "again.json").read_text())
            self.assertAlmostEqual(again["int8"]["loss"], both["int8"]["loss"], places=6)
        self.refuse("evaluate", "c", *self.INT8, "--set", "train.precision=bf16", says="train.precision=fp32")

    def test_pages_off_the_device_are_not_computed_again(self):
        self.succeed("train", "recipe.yaml", "--set", "train.checkpoint_folder=l", "--set", "model.context=256", "--set", "train.steps=2")
        page = 4 * 2 * 32 * 64 * 4  # layers, keys and values, width, tokens, bytes
        disk = ("--cache-disk", "1MiB", "--set", "memory.disk.path=disk")

        def serve(*arguments):
            cache = () if "--cache" in arguments else ("--cache", f"{4 * page}B")
            return Server(self, "l", "--listen", "127.0.0.1:0", *cache, *arguments)

        def talk(server):
            """Six texts take turns twice; what the second turn found, and all answers."""
            answers = [server.complete(prompt=letter * 150, max_tokens=4, logprobs=1) for letter in "abcdef" * 2]
            cached = {answer["usage"]["prompt_tokens_details"]["cached_tokens"] for answer in answers[6:]}
            return cached, [answer["choices"] for answer in answers]

        one = ("--set", "mesh.pp=1")
        cached, expected = talk(serve(*one))
        self.assertEqual(cached, {0})
        self.assertEqual(expected[:6], expected[6:])
        for more in ([*one, "--cache-host", "1MiB"], [*one, *disk], [*one, "--cache-host", f"{3 * page}B", *disk],
                     [*disk], [*one, *disk, "--cache-host", f"{6 * page}B", "--cache", f"{8 * page}B", "--draft", "l"]):
            server = serve(*more)
            self.assertEqual(talk(server), ({128}, expected))
            self.assertGreaterEqual(server.metric("strata_loaded_pages_total"), 12)
            self.assertEqual(server.end()[0], 0)
        self.assertFalse((self.folder / "disk").exists())
        # The plan counts them, within budgets.
        text = self.succeed("plan", "l", "--serve", "--estimate", *one, "--cache", f"{4 * page}B", "--cache-host", f"{16 * page}B", *disk, "--json", "plan.json")
        plan = json.loads((self.folder / "plan.json").read_text())
        self.assertEqual((plan["pages"], plan["host_pages"], plan["disk_pages"]), (4, 16, 16))
        self.assertEqual(plan["stages"][0]["host_bytes"], 17 * page)  # one passes through to the disk
        self.assertGreaterEqual(plan["stages"][0]["disk_bytes"], 16 * page)
        self.assertIn("32 more for texts that no answer needs now", text)
        server = serve(*one, "--cache-host", f"{16 * page}B", *disk, "--set", f"memory.host={17 * page}B")
        self.assertEqual(talk(server)[0], {128})
        self.refuse("serve", "l", "--cache-host", f"{16 * page}B", *one, "--set", f"memory.host={15 * page}B", says=["memory.host", "pages", "the model and its keys and values", "a smaller --cache-host"])
        self.refuse("serve", "l", "--cache-host", "500TiB", *one, says=["too many pages", "--cache-host"])
        self.refuse("serve", "l", "--cache-disk", "1MiB", says=["--cache-disk", "memory.disk.path"])
        self.refuse("serve", "l", "--cache-host", "1KiB", says=["--cache-host", "no room for a page"])
        self.refuse("serve", "l", "--cache-host", "much", says="bytes")

    def test_a_draft_model_changes_no_answer(self):
        requests = [dict(prompt=WORDS[:1 + i % 16] + "word " * (i % 2), seed=i, temperature=i % 3 / 2, max_tokens=3 + i % 8,
                         logprobs=2, echo=i % 3 == 0) for i in range(16)]

        def choices(server, threads):
            with concurrent.futures.ThreadPoolExecutor(threads) as pool:
                return [answer["choices"] for answer in pool.map(lambda fields: server.complete(**fields), requests)]

        self.succeed("train", "recipe.yaml", "--set", "train.checkpoint_folder=d", "--set", "model.layers=1")
        alone = choices(self.serve("--set", "mesh.pp=1"), 1)
        for more in (["--draft", "d", "--set", "mesh.pp=1"], ["--draft", "d", "--guesses", "2", "--pass-tokens", "9", "--sequences", "3"],
                     ["--draft", "c", "--draft-weights", "int8", "--set", "memory.weights=host"]):
            server = self.serve(*more)
            self.assertEqual(choices(server, 8), alone)
            guessed, accepted = (server.metric(f"strata_{name}_total") for name in ("guessed_tokens", "accepted_guesses"))
            self.assertGreater(accepted, guessed / 4)
            self.assertRegex(server.lines[0], r"values, [24] guesses by step-00000008( int8)?")
            self.assertRegex(server.text(structured_outputs={"regex": "[0-9]{4}"}), r"\A[0-9]{4}\Z")
        processes = self.serve("--draft", "d", launch=("-n", "2"))
        self.assertEqual(choices(processes, 8), alone)
        # Without ranks that add in another order, the model is its own best guesser.
        server = self.serve("--draft", "c", "--set", "mesh.pp=1")
        self.assertEqual(choices(server, 8), alone)
        guessed, accepted = (server.metric(f"strata_{name}_total") for name in ("guessed_tokens", "accepted_guesses"))
        self.assertGreater(guessed, 30)
        self.assertEqual(accepted, guessed)

    def test_the_recipe_of_a_draft_model_does_not_change_the_served_one(self):
        fields = ("--set", "train.primitives=aten", "--set", "train.precision=bf16")
        self.succeed("train", "recipe.yaml", "--set", "train.checkpoint_folder=d", *fields)
        expected = self.serve("--set", "mesh.pp=1").complete(logprobs=2)["choices"]
        for weights in ((), ("--draft-weights", "int8")):
            server = self.serve("--set", "mesh.pp=1", "--draft", "d", *weights)
            self.assertEqual(server.complete(logprobs=2)["choices"], expected)
            self.assertIn("gpt, fp32", server.lines[0])
        self.refuse("serve", "c", "--set", "train.primitives=aten", "--draft", "d", "--draft-weights", "int8",
                    says=["--draft-weights int8", "only Strata's own kernels"])

    def test_a_plan_counts_a_draft_model(self):
        mesh = ("--set", "mesh.pp=1")
        text, plain, alone = self.plan("c", "--estimate", *mesh)
        self.assertNotIn("draft", text)
        self.assertEqual(plain["draft_bytes"], 0)
        draft = ("--draft", "c", "--draft-weights", "int8")
        text, plan, peak = self.plan("c", "--estimate", *mesh, *draft)
        self.assertRegex(text, r"iB on rank.* draft .* peak")
        self.assertIn("guesses    4 a pass by step-00000008 int8", text)
        self.assertLess(plan["pages"], plain["pages"])  # --cache is for both models
        self.assertGreater(plan["draft_bytes"], 0)
        server = self.serve(*self.SMALL, *mesh, *draft, "--set", f"memory.device={peak}B")
        self.assertEqual(server.text(), self.serve().text())
        self.refuse("serve", "c", *self.SMALL, *draft, "--set", "memory.device=100KiB", says=["memory.device", "draft", "smaller --cache, --pass-tokens or --draft"])

    def test_refuses_a_draft_model_that_cannot_guess(self):
        self.succeed("train", "recipe.yaml", "--set", "train.checkpoint_folder=d", "--set", "model.vocab=300")
        self.refuse("serve", "c", "--draft", "d", says=["[serve.draft] --draft", "embeddings of another number of tokens", "got       300"])
        self.refuse("plan", "c", "--serve", "--draft", "d", says="another number of tokens")
        self.refuse("serve", "c", "--draft", "nowhere", says="nowhere")
        self.refuse("serve", "c", "--measure", "page.html", "--draft", "nowhere", says="nowhere")
        for option in ("--draft", "--guesses", "--cache-host", "--cache-disk"):
            self.refuse("plan", "recipe.yaml", option, "1", says="--serve")
        self.refuse("serve", "c", "--draft-weights", "int8", says="--draft")
        self.refuse("serve", "c", "--draft", "c", "--guesses", "0", says=["--guesses", "nothing to guess"])
        self.refuse("serve", "c", "--draft", "c", "--draft-weights", "int9", says="[cli.weights] --draft-weights")
        self.succeed("train", "recipe.yaml", "--set", "train.checkpoint_folder=e", "--set", "model.context=16")
        self.assertIn("context 16 of the model's 32", self.serve("--draft", "e").lines[0])
        self.refuse("serve", "c", "--draft", "e", "--context", "20", says=["the draft model has fewer positions", "at most 16"])

    def test_the_cache_leaves_room_in_a_budget(self):
        def pages(*arguments):
            server = self.serve("--set", "mesh.pp=1", *arguments)
            self.assertTrue(server.text())
            return int(re.search(r"(\d+) pages", server.lines[0])[1])
        budget = ("--set", "memory.device=64MiB")  # the default without a budget is 1 GiB
        self.assertEqual(pages(*budget), pages("--cache", "32MiB"))
        self.assertEqual(pages(), pages("--cache", "1GiB"))
        self.refuse("serve", "c", "--cache", "", says="bytes")

    def test_embeddings_are_equal_on_all_meshes_and_in_any_batch(self):
        def embeddings(server, inputs):
            data = server.post("/v1/embeddings", {"input": inputs})["data"]
            return [item["embedding"] for item in data]
        texts = [WORDS, "And God said, Let there be light", "a"]
        server = self.serve("--set", "mesh.pp=1")
        together = embeddings(server, texts)
        self.assertEqual(together, [embeddings(server, text)[0] for text in texts])
        for embedding in together:
            self.assertAlmostEqual(sum(x * x for x in embedding), 1, places=5)
        self.assertGreater(max(abs(a - b) for a, b in zip(together[0], together[1])), 0.01)
        self.assertEqual(embeddings(self.serve("--set", "mesh.pp=2"), texts), together)

    def test_a_plan_shows_what_a_server_needs_and_reaches(self):
        one_rank = ("--set", "mesh.pp=1")
        text, plan, peak = self.plan("c", *one_rank)
        self.assertEqual([row["at_once"] for row in plan["answers"]], [1, 4, 16])
        self.assertGreater(plan["prompt"]["seconds"], 0)
        self.assertIn("answers at once", text)
        text, plan, same = self.plan("recipe.yaml", "--estimate", *one_rank)
        self.assertEqual(same, peak)
        self.assertNotIn("answers at once", text)
        text, plan, less = self.plan("recipe.yaml", "--estimate", *one_rank, "--set", f"memory.device={peak - 1}B")
        self.assertLess(less, peak)
        self.assertGreater(plan["layers_off_device"], 0)
        self.refuse("plan", "recipe.yaml", "--serve", *self.SMALL, "--set", "memory.device=4KiB",
                    says=["[plan.memory]", "memory.device="])
        self.refuse("plan", "recipe.yaml", "--cache", "1MiB", says="--serve")

    def test_a_server_follows_a_run_without_losing_a_request(self):
        first = self.serve().complete(logprobs=0)["choices"]
        server = self.serve("--follow", "0.1", launch=("-n", "2"))
        answers = []
        training = self.start("train", "recipe.yaml", "--resume", "c", "--set", "train.checkpoint_folder=c",
                              "--set", "train.steps=16")
        deadline = time.time() + 60
        while time.time() < deadline and not (answers and answers[-1]["system_fingerprint"] == "step-00000016"):
            with concurrent.futures.ThreadPoolExecutor(4) as pool:
                answers += pool.map(lambda _: server.complete(logprobs=0), range(4))
        self.assertEqual(training.wait(timeout=60), 0)
        later = self.serve().complete(logprobs=0)["choices"]
        self.assertNotEqual(later, first)
        choices = {"step-00000008": first, "step-00000016": later}
        for answer in answers:
            self.assertEqual(answer["choices"], choices[answer["system_fingerprint"]])
        self.assertEqual({answer["system_fingerprint"] for answer in answers}, set(choices))
        self.assertIn("promoted  c/step-00000016", server.end()[1])

    def test_a_gate_and_damage_keep_a_checkpoint_away(self):
        # Weights of more than 4 MiB, of which opening verifies only the first chunk.
        wide = ("train", "recipe.yaml", "--set", "model.width=192", "--set", "mesh.pp=1", "--set")
        self.succeed(*wide, "train.checkpoint_folder=c2")
        self.succeed(*wide, "train.checkpoint_folder=later", "--set", "train.steps=12", "--resume", "c2")
        gated, damaged = (Server(self, "c2", "--listen", "127.0.0.1:0", "--follow", "0.1", *gate)
                          for gate in (("--gate", "test -e accepted # "), ()))
        step = self.folder / "later" / "step-00000012"
        weights = step / "model.safetensors"
        whole = weights.read_bytes()
        weights.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
        step.rename(self.folder / "c2" / step.name)
        for server, words in ((gated, "the gate ended with exit code 1"), (damaged, "checksum")):
            line = server.process.stdout.readline()
            self.assertRegex(line, r"^refused   .*" + words)
            self.assertEqual(server.complete()["system_fingerprint"], "step-00000008")
            self.assertEqual(server.end()[0], 0)
        self.refuse("serve", "c/step-00000008", "--follow", "1", says=["--follow", "several"])
        self.refuse("serve", "c", "--gate", "true", says="--follow")

    def test_clients_of_kserve_get_the_same_text(self):
        server = self.serve("--grpc-listen", "127.0.0.1:0")
        self.assertRegex(server.lines[0], r"by gRPC at 127\.0\.0\.1:\d+: ")
        fields = {"text_input": WORDS, "max_tokens": 12, "temperature": 0}
        written = WORDS + server.text()
        self.assertEqual(server.post("/v2/models/tiny/generate", fields)["text_output"], written)
        answer = server.post("/v2/models/tiny/infer", {
            "inputs": [{"name": "text_input", "datatype": "BYTES", "shape": [1], "data": [WORDS]}],
            "parameters": {"max_tokens": 12, "temperature": 0}})
        self.assertEqual(answer["outputs"], [{"name": "text_output", "datatype": "BYTES", "shape": [1], "data": [written]}])
        self.assertEqual(server.get("/v2/health/ready"), "")
        self.assertEqual(server.metric("nv_inference_request_success"), 3)
        self.assertEqual(server.end()[0], 0)

    def test_a_signal_ends_a_gate_and_a_load_that_waits(self):
        self.succeed("train", "recipe.yaml", "--resume", "c", "--set", "train.checkpoint_folder=later",
                     "--set", "train.steps=12")
        gated = self.serve("--follow", "0.1", "--gate", "touch started; sleep 100 #")
        (self.folder / "later" / "step-00000012").rename(self.folder / "c" / "step-00000012")
        deadline = time.time() + 30
        while not (self.folder / "started").exists() and time.time() < deadline:
            time.sleep(0.02)
        begin = time.time()
        self.assertEqual(gated.end()[0], 0)
        self.assertLess(time.time() - begin, 30)

    def test_a_server_does_not_go_back_to_an_earlier_checkpoint(self):
        self.succeed("train", "recipe.yaml", "--set", "train.checkpoint_folder=c", "--resume", "c", "--set",
                     "train.steps=12")
        server = self.serve("--follow", "0.1")
        (self.folder / "c" / "step-00000012").rename(self.folder / "gone")  # step 8 is the newest now
        time.sleep(0.5)
        self.assertEqual(server.complete()["system_fingerprint"], "step-00000012")
        self.assertNotIn("step-00000008", server.end()[1])

    def test_processes_serve_what_threads_serve(self):
        text = self.serve().text()
        server = self.serve(launch=("-n", "2"))
        self.assertEqual(server.text(), text)

    def test_a_killed_process_comes_back(self):
        port = free_ports(1)[0]
        server = Server(self, "c", "--listen", f"127.0.0.1:{port}", launch=("-n", "2", "--restarts", "1"))
        text = server.text()
        children = pathlib.Path(f"/proc/{server.process.pid}/task/{server.process.pid}/children").read_text().split()
        os.kill(int(children[0]), signal.SIGKILL)
        server.await_ready()
        self.assertEqual(server.text(), text)

    def test_a_server_without_room_asks_the_client_to_come_back(self):
        server = self.serve("--sequences", "1", "--waiting", "1")
        connection, response = server.stream(max_tokens=16)
        with concurrent.futures.ThreadPoolExecutor(12) as pool:
            def attempt(_):
                try:
                    server.complete(max_tokens=16)
                    return 200, None
                except urllib.error.HTTPError as error:
                    return error.code, error.headers["Retry-After"]
            outcomes = list(pool.map(attempt, range(12)))
        self.assertTrue(all(code in (200, 429) for code, _ in outcomes), outcomes)
        self.assertTrue(all(int(after) >= 1 for code, after in outcomes if code == 429))
        self.assertIn(429, [code for code, _ in outcomes])
        self.assertEqual(events(response)[-1], "[DONE]")
        connection.close()

    def test_a_signal_lets_running_answers_end(self):
        server = self.serve()
        connection, response = server.stream(max_tokens=16)
        response.readline()
        server.process.send_signal(signal.SIGTERM)
        self.assertEqual(events(response)[-1], "[DONE]")
        connection.close()
        self.assertEqual(server.process.wait(timeout=60), 0)

    def test_a_client_that_leaves_frees_its_pages(self):
        server = self.serve()
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            def leave(_):
                connection, response = server.stream(max_tokens=16, prompt="a")
                response.readline()
                connection.close()
                response.close()
            list(pool.map(leave, range(8)))
        deadline = time.time() + 30
        while server.metric("vllm:num_requests_running") > 0 and time.time() < deadline:
            time.sleep(0.05)
        self.assertEqual(server.metric("vllm:num_requests_running"), 0)
        self.assertEqual(server.metric("vllm:kv_cache_usage_perc"), 0)

    def test_a_file_of_keys_closes_all_routes_but_health(self):
        (self.folder / "keys.yaml").write_text("keys:\n  - {name: alice, key: sk-alice}\n")
        server = self.serve("--keys", "keys.yaml")
        self.assertIn("ok", server.get("/health"))
        for path in ("/v1/models", "/metrics"):
            with self.assertRaises(urllib.error.HTTPError) as refused:
                server.get(path)
            self.assertEqual(refused.exception.code, 401)
        self.assertEqual(len(server.post("/v1/completions", {"prompt": "a", "max_tokens": 3},
                                         Authorization="Bearer sk-alice")["choices"]), 1)

    def test_refuses_what_cannot_be_served(self):
        self.refuse("serve", "c", "--listen", "unix:/tmp/a", says=["--listen", "HOST:PORT"])
        self.refuse("serve", "c", "--listen", "127.0.0.1:99999", says="port")
        self.refuse("serve", "c", "--grpc-listen", "unix:/tmp/a", says=["--grpc-listen", "HOST:PORT"])
        self.refuse("serve", "none", says="none")
        self.refuse("serve", "c", "--context", "1000", says=["--context", "at most 32"])
        self.refuse("serve", "c", "--keys", "missing.yaml", says="missing.yaml")
        self.refuse("serve", "c", "--tls-key", "missing.pem", says="--tls-certificate")
        self.refuse("serve", "c", "--set", "data.tokenizer=none", says="tokens have no text")
        self.refuse("serve", "c", "--cache", "1KiB", says=["--cache", "no room for a page"])
        self.refuse("serve", "c", "--pass-tokens", "4", says=["pass_tokens", "at least 16"])
        taken = self.serve()
        self.refuse("serve", "c", "--listen", taken.address, says=taken.address.split(":")[1])


if __name__ == "__main__":
    unittest.main()
