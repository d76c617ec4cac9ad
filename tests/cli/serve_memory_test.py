"""Tests how `strata serve` fits its memory: weights off the device or in fewer bits, a draft model, pages off the device, and their plans."""

import json
import re
import unittest

from model_server import WORDS, Server, ServerTest


class ServeInMemory(ServerTest):
    SMALL = ("--cache", "512KiB", "--pass-tokens", "16")

    def plan(self, *arguments):
        text = self.succeed("plan", *arguments, "--serve", *self.SMALL, "--json", "plan.json")
        plan = json.loads((self.folder / "plan.json").read_text())
        return text, plan, max(stage["peak_bytes"] for stage in plan["stages"])

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

    def test_answers_of_rounded_weights_are_equal_alone_among_others_and_on_every_tier(self):
        requests = [dict(prompt=WORDS[:1 + i % 16] + "word " * (i % 2), seed=i, temperature=1.0, max_tokens=3 + i % 8,
                         logprobs=2, echo=i % 3 == 0) for i in range(16)]

        written = self.succeed("generate", "c", "--prompt", WORDS, "--tokens", "12", "--temperature", "0", *self.INT8)
        server = self.serve(*self.INT8, "--set", "mesh.pp=1")
        self.assertIn(": gpt, fp32, weights int8, context 32", server.lines[0])
        self.assertEqual(WORDS + server.text(), written.rstrip("\n"))
        alone = server.choices(requests, 1)
        fp32 = self.serve()
        self.assertNotEqual(fp32.choices(requests, 1), alone)  # log probabilities of rounded weights
        self.assertEqual(server.complete()["system_fingerprint"], "step-00000008 int8")
        self.assertEqual(fp32.complete()["system_fingerprint"], "step-00000008")
        for more in (["--pass-tokens", "7", "--sequences", "3", "--guesses", "3"], ["--set", "memory.weights=host"],
                     ["--set", "memory.weights=disk", "--set", "memory.disk.path=disk"]):
            self.assertEqual(self.serve(*self.INT8, *more).choices(requests, 8), alone)
        split = self.serve(*self.INT8, "--set", "mesh.tp=2")
        self.assertEqual(split.choices(requests, 8), split.choices(requests, 1))
        processes = self.serve(*self.INT8, launch=("-n", "2"))
        self.assertEqual(processes.choices(requests, 8), alone)
        server = self.serve("--weights", "int4", "--set", "mesh.pp=1")
        self.assertIn(": gpt, fp32, weights int4, context 32", server.lines[0])
        smaller = server.choices(requests, 1)
        self.assertNotEqual(smaller, alone)
        for more in (["--pass-tokens", "7", "--sequences", "3"], ["--set", "mesh.pp=2", "--set", "memory.weights=host"]):
            self.assertEqual(self.serve("--weights", "int4", *more).choices(requests, 8), smaller)

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

    def test_refuses_rounded_weights_where_nothing_computes_with_them(self):
        self.refuse("serve", "c", "--weights", "int9", says=["[cli.weights] --weights", "precision, int8, int4", "'int8'"])
        self.refuse("generate", "c", "--weights", "q5", says=["[cli.weights]", "got       q5"])
        aten = ("--set", "train.primitives=aten")
        self.refuse("serve", "c", *self.INT8, *aten, says=["--weights int8: only Strata's own kernels", "primitives=own"])
        self.refuse("generate", "c", "--prompt", "a", *self.INT8, *aten, says="only Strata's own kernels")
        gpu = ("--set", "mesh.device=cuda")
        self.refuse("serve", "c", *self.INT8, *gpu, says=["only a CPU", "got       mesh.device=cuda", "mesh.device=cpu"])
        self.refuse("evaluate", "c", *self.INT8, *gpu, says="only a CPU")
        self.refuse("plan", "recipe.yaml", "--serve", "--machine", "h100", *self.INT8, *gpu, says="only a CPU")
        self.refuse("plan", "recipe.yaml", *self.INT8, says="--serve")
        self.refuse("serve", "c", "--weights", "int4", "--set", "mesh.tp=2",
                    says=["[models.split] mesh.tp: 2 tensor-parallel ranks", "within groups that share a scale"])
        self.refuse("serve", "c", *self.INT8, "--set", "train.precision=bf16", says=["computed in fp32", "got       bf16",
                                                                                    "--set train.precision=fp32"])

    def test_an_evaluation_prints_the_change_by_rounded_weights(self):
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
        out = self.succeed("evaluate", "c", "--weights", "int4", "--json", "int4.json")
        int4 = json.loads((self.folder / "int4.json").read_text())
        self.assertEqual(int4["loss"], fp32["loss"])
        self.assertGreater(abs(int4["int4"]["change"]), abs(change))
        self.assertRegex(out, r"(?m)^int4     validation ")

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

        self.succeed("train", "recipe.yaml", "--set", "train.checkpoint_folder=d", "--set", "model.layers=1")
        alone = self.serve("--set", "mesh.pp=1").choices(requests, 1)
        for more in (["--draft", "d", "--set", "mesh.pp=1"], ["--draft", "d", "--guesses", "2", "--pass-tokens", "9", "--sequences", "3"],
                     ["--draft", "c", "--draft-weights", "int8", "--set", "memory.weights=host"]):
            server = self.serve(*more)
            self.assertEqual(server.choices(requests, 8), alone)
            guessed, accepted = (server.metric(f"strata_{name}_total") for name in ("guessed_tokens", "accepted_guesses"))
            self.assertGreater(accepted, guessed / 4)
            self.assertRegex(server.lines[0], r"values, [24] guesses by step-00000008( int8)?")
            self.assertRegex(server.text(structured_outputs={"regex": "[0-9]{4}"}), r"\A[0-9]{4}\Z")
        processes = self.serve("--draft", "d", launch=("-n", "2"))
        self.assertEqual(processes.choices(requests, 8), alone)
        # Without ranks that add in another order, the model is its own best guesser.
        server = self.serve("--draft", "c", "--set", "mesh.pp=1")
        self.assertEqual(server.choices(requests, 8), alone)
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
        self.assertIn("guesses    4 a pass by step-00000008 int8, on the rank with the logits\n", text)
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


if __name__ == "__main__":
    unittest.main()
