"""Drives the server with Triton's own Python clients, tritonclient.http and tritonclient.grpc.

Exit code 77, with the reason, where they are not installed.
"""

import json
import os
import queue
import subprocess
import sys
import tempfile
import unittest
import urllib.request

try:
    import numpy
    import tritonclient.grpc
    import tritonclient.http
    from tritonclient.utils import InferenceServerException
except ImportError:
    tritonclient = None

OUTPUTS = ("text_output", "output_ids", "log_probabilities", "finish_reason")


class Server:
    """A running kserve_fake_server with its addresses."""

    def __init__(self, **options):
        arguments = [f"{name}={value}" for name, value in options.items()]
        self.process = subprocess.Popen([os.environ["STRATA_KSERVE_FAKE_SERVER"], *arguments], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)
        self.http, self.grpc = (self.process.stdout.readline().strip() for _ in range(2))

    def end(self):
        self.process.stdin.close()
        code = self.process.wait(timeout=60)
        self.process.stdout.close()
        if code != 0:
            raise RuntimeError(f"the server ended with {code}")


def tensor(client, name, datatype, values):
    array = numpy.array(values, dtype=object if datatype == "BYTES" else None)
    made = client.InferInput(name, list(array.shape), datatype)
    made.set_data_from_numpy(array)
    return made


class Clients(unittest.TestCase):
    def serve(self, **options):
        self.server = Server(**options)
        self.addCleanup(self.server.end)
        http = tritonclient.http.InferenceServerClient(self.server.http)
        grpc = tritonclient.grpc.InferenceServerClient(self.server.grpc)
        self.addCleanup(grpc.close)
        self.addCleanup(http.close)
        return http, grpc

    @staticmethod
    def request(client, text, tokens=6, **fields):
        sampling = json.dumps({"max_tokens": tokens, "temperature": 0, **fields})
        return [tensor(client, "text_input", "BYTES", [text.encode()]),
                tensor(client, "sampling_parameters", "BYTES", [sampling.encode()])]

    def test_server_and_model_state_that_they_are_ready(self):
        for client in self.serve():
            self.assertTrue(client.is_server_live())
            self.assertTrue(client.is_server_ready())
            self.assertTrue(client.is_model_ready("fake"))
            self.assertTrue(client.is_model_ready("fake", "1"))

    def test_descriptions_over_http_and_grpc_are_equal(self):
        http, grpc = self.serve()
        for name in ("get_server_metadata", "get_model_repository_index", "get_inference_statistics"):
            by_http, by_grpc = getattr(http, name)(), getattr(grpc, name)(as_json=True)
            self.assertEqual(self.plain(by_grpc.get("models", by_grpc)), self.plain(by_http), name)
        by_http, by_grpc = http.get_model_metadata("fake"), grpc.get_model_metadata("fake", as_json=True)
        self.assertEqual(self.plain(by_grpc), self.plain(by_http))
        by_http, by_grpc = http.get_model_config("fake"), grpc.get_model_config("fake", as_json=True)["config"]
        self.assertEqual(self.plain(by_grpc), self.plain(by_http))

    @classmethod
    def plain(cls, value):
        """Without what protobuf's JSON omits or writes as text: zeros, false, 64-bit numbers."""
        if isinstance(value, dict):
            return {key: cls.plain(each) for key, each in value.items() if each not in (0, "0", "", False, [])}
        return [cls.plain(each) for each in value] if isinstance(value, list) else str(value)

    def test_all_forms_have_the_same_bytes(self):
        http, grpc = self.serve()
        answers = []
        for binary in (True, False):
            answers.append(http.infer("fake", self.request(tritonclient.http, "héllo"), outputs=[
                tritonclient.http.InferRequestedOutput(name, binary_data=binary) for name in OUTPUTS]))
        answers.append(grpc.infer("fake", self.request(tritonclient.grpc, "héllo"), outputs=[
            tritonclient.grpc.InferRequestedOutput(name) for name in OUTPUTS]))
        texts = [answer.as_numpy("text_output")[0] for answer in answers]
        texts = [text.decode() if isinstance(text, bytes) else text for text in texts]
        self.assertEqual(texts, ["héllohéllo"] * 3)
        for name in ("output_ids", "log_probabilities"):
            arrays = [answer.as_numpy(name) for answer in answers]
            self.assertEqual(len({(array.dtype.str, array.tobytes()) for array in arrays}), 1, name)
            self.assertEqual(arrays[0].shape, (6,))

    def test_outputs_are_binary_by_default(self):
        http, _ = self.serve()
        answer = http.infer("fake", self.request(tritonclient.http, "abc"), request_id="seven")
        self.assertEqual(answer.as_numpy("text_output").tolist(), [b"abcabcabc"])
        self.assertEqual(answer.get_response()["id"], "seven")

    def test_json_inputs_equal_binary_inputs(self):
        http, _ = self.serve()
        inputs = self.request(tritonclient.http, "abc")
        for each, value in zip(inputs, ("abc", '{"max_tokens": 6, "temperature": 0}')):
            each.set_data_from_numpy(numpy.array([value], dtype=object), binary_data=False)
        answer = http.infer("fake", inputs)
        self.assertEqual(answer.as_numpy("text_output").tolist(), [b"abcabcabc"])

    def test_tokens_take_the_place_of_a_text(self):
        http, grpc = self.serve()
        for client, module in ((http, tritonclient.http), (grpc, tritonclient.grpc)):
            inputs = [tensor(module, "input_ids", "INT64", numpy.array([104, 105])), self.request(module, "")[1]]
            self.assertEqual(client.infer("fake", inputs).as_numpy("text_output").tolist(), [b"hihihihi"])

    def test_a_stream_has_an_answer_a_token(self):
        _, grpc = self.serve(answer="xyz\x03")
        answers = queue.Queue()
        grpc.start_stream(lambda result, error: answers.put((result, error)))
        inputs = [*self.request(tritonclient.grpc, "abc"), tensor(tritonclient.grpc, "stream", "BOOL", [True])]
        grpc.async_stream_infer("fake", inputs, request_id="one")
        texts, final = [], False
        while not final:
            result, error = answers.get(timeout=30)
            self.assertIsNone(error)
            self.assertEqual(result.get_response().id, "one")
            texts.append(result.as_numpy("text_output")[0])
            final = result.get_response().parameters["triton_final_response"].bool_param
        self.assertEqual(texts, [b"x", b"y", b"z", b""])
        grpc.async_stream_infer("other", inputs)
        result, error = answers.get(timeout=30)
        self.assertIn("there is no model 'other'", str(error))
        grpc.stop_stream()

    def test_generate_writes_json(self):
        self.serve()
        body = json.dumps({"text_input": "abc", "parameters": {"max_tokens": 3, "temperature": 0}}).encode()
        with urllib.request.urlopen(f"http://{self.server.http}/v2/models/fake/generate", body) as answer:
            self.assertEqual(json.load(answer)["text_output"], "abcabc")
        with urllib.request.urlopen(f"http://{self.server.http}/v2/models/fake/generate_stream", body) as answer:
            events = [json.loads(line[6:])["text_output"] for line in answer.read().decode().split("\n\n") if line]
        self.assertEqual(events, ["a", "b", "c"])

    def test_refusals_have_a_status_and_a_reason(self):
        http, grpc = self.serve()
        for client, module, statuses in ((http, tritonclient.http, ("400", "404", "501")),
                                         (grpc, tritonclient.grpc, ("INVALID_ARGUMENT", "NOT_FOUND", "UNIMPLEMENTED"))):
            calls = [lambda: client.infer("fake", [tensor(module, "text", "BYTES", [b"a"])]),
                     lambda: client.get_model_metadata("other"),
                     lambda: client.load_model("fake")]
            for call, status, words in zip(calls, statuses, ("no input of the model", "no model 'other'", "started with")):
                with self.assertRaises(InferenceServerException) as refused:
                    call()
                self.assertIn(status, refused.exception.status())
                self.assertIn(words, refused.exception.message())

    def test_a_full_server_asks_the_client_to_come_back(self):
        http, grpc = self.serve(requests=0)
        for client, module, status in ((http, tritonclient.http, "429"), (grpc, tritonclient.grpc, "RESOURCE_EXHAUSTED")):
            with self.assertRaises(InferenceServerException) as refused:
                client.infer("fake", self.request(module, "abc"))
            self.assertIn(status, refused.exception.status())

    def test_keys_close_all_but_health(self):
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as keys:
            keys.write("keys: [{name: alice, key: sk-a}]\n")
            keys.flush()
            http, grpc = self.serve(keys=keys.name)
        for client, module in ((http, tritonclient.http), (grpc, tritonclient.grpc)):
            self.assertTrue(client.is_server_live())
            with self.assertRaises(InferenceServerException) as refused:
                client.get_model_metadata("fake")
            self.assertRegex(refused.exception.status(), "401|UNAUTHENTICATED")
            answer = client.infer("fake", self.request(module, "abc"), headers={"authorization": "Bearer sk-a"})
            self.assertEqual(answer.as_numpy("text_output").tolist(), [b"abcabcabc"])

    def test_statistics_count_requests(self):
        http, grpc = self.serve()
        http.infer("fake", self.request(tritonclient.http, "abc"))
        grpc.infer("fake", self.request(tritonclient.grpc, "abc"))
        counts = http.get_inference_statistics("fake")["model_stats"][0]
        self.assertEqual(counts["inference_stats"]["success"]["count"], 2)
        with urllib.request.urlopen(f"http://{self.server.http}/metrics") as answer:
            self.assertIn('nv_inference_request_success{model="fake",version="1"} 2\n', answer.read().decode())


if __name__ == "__main__":
    if tritonclient is None:
        print("skipped: the Python package tritonclient[http,grpc] is not installed")
        sys.exit(77)
    unittest.main()
