"""Tests `strata serve`: what clients get is what `strata generate` writes, alone or among others, on any mesh."""

import concurrent.futures
import json
import os
import pathlib
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

        alone = self.serve("--set", "mesh.pp=1").choices(requests, 1)
        for mesh in ([], ["--set", "mesh.pp=1", "--sequences", "3", "--pass-tokens", "7", "--guesses", "3"]):
            self.assertEqual(self.serve(*mesh).choices(requests, 8), alone)
        # Tensor-parallel ranks add in another order: the same numbers on that mesh whatever runs beside.
        split = ["--set", "mesh.tp=2"]
        server = self.serve(*split)
        self.assertEqual(server.choices(requests, 8), server.choices(requests, 1))

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

    def test_a_measurement_compares_meshes_and_precisions(self):
        quick = ("--measure", "page.html", "--measure-seconds", "0.2", "--sequences", "4", "--cache", "256KiB")
        out = self.succeed("serve", "c", *quick)
        page = self.page("page.html")
        table = self.card(page, "All numbers")["table"]
        rows = [dict(zip(["setting", *table["columns"][1:]], row)) for row in table["rows"]]
        settings = ["1 rank", "tp 2", "pp 2"] if os.cpu_count() > 1 else ["1 rank"]
        measured = {row["setting"] for row in rows}
        self.assertLessEqual({f"{mesh}, {weights}" for mesh in settings for weights in ("fp32", "bf16", "int8")}, measured)
        self.assertIn("1 rank, int4", measured)
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
        self.assertRegex(out, r"(?m)^fastest   " + best["setting"] + r":.* --set mesh\.pp=\d --set mesh\.tp=\d --set train\.precision=(fp32|bf16)( --weights int[48])?$")
        # Fields that the caller sets are not varied; what cannot be served is listed.
        one = self.succeed("serve", "c", *quick, "--set", "mesh.pp=1", "--set", "train.precision=fp32")
        self.assertIn("the mesh of the recipe, 1 at once", one)
        self.assertIn("the mesh of the recipe, int8, 1 at once", one)
        one = self.succeed("serve", "c", *quick, "--set", "mesh.pp=1", "--weights", "int8")
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
