"""A server of rows answers HTTP: metrics that Prometheus reads, and its health."""

import http.client
import re
import unittest

import prometheus_text
from strata_program import ProgramTest

FEATURES = '''{"features": [{"name": "user", "width": 8}, {"name": "the \\"best\\" \\\\ words", "width": 4}]}'''


class RowMetrics(ProgramTest):
    def serve(self, *arguments, name="a"):
        """The server, and the port of its HTTP."""
        (self.folder / "features.json").write_text(FEATURES)
        server = self.start("embed-server", "--features", "features.json", "--folder", f"rows-{name}",
                            "--listen", f"unix:{name}.sock", "--metrics-listen", "127.0.0.1:0", *arguments)
        line = server.stdout.readline()
        self.assertIn("embed-server shard 0 of 1", line, server.stderr.read() if not line else "")
        found = re.fullmatch(r"metrics +http://127\.0\.0\.1:(\d+)/metrics\n", server.stdout.readline())
        self.assertIsNotNone(found)
        return server, int(found[1])

    def ask(self, port, path, method="GET"):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        try:
            connection.request(method, path)
            answer = connection.getresponse()
            return answer.status, answer.getheader("Content-Type"), answer.read().decode()
        finally:
            connection.close()

    def test_metrics_have_format_of_prometheus(self):
        _, port = self.serve()
        status, kind, text = self.ask(port, "/metrics")
        self.assertEqual((status, kind), (200, "text/plain; version=0.0.4; charset=utf-8"))
        families = prometheus_text.parse(text)
        self.assertEqual(families["strata_embed_version"], ("gauge", {("strata_embed_version", ()): 0}))
        self.assertEqual(families["strata_embed_reads_total"][0], "counter")
        names = {dict(labels)["feature"] for _, labels in families["strata_embed_rows"][1]}
        self.assertEqual(names, {"user", r"the \"best\" \\ words"})
        self.assertEqual(families["strata_embed_staleness"][0], "histogram")
        reported = self.succeed("embed-server", "--ask", "metrics", "--listen", "unix:a.sock")
        self.assertEqual(prometheus_text.parse(reported).keys(), families.keys())

    def test_serves_health_and_refuses_other_paths(self):
        server, port = self.serve()
        self.assertEqual(self.ask(port, "/health")[::2], (200, "SERVING\n"))
        self.assertEqual(self.ask(port, "/")[0], 404)
        self.assertEqual(self.ask(port, "/metrics/")[0], 404)
        self.assertEqual(self.ask(port, "/metrics", "POST")[0], 405)
        server.terminate()
        self.assertEqual(server.wait(timeout=60), 0)
        with self.assertRaises(OSError):
            self.ask(port, "/health")

    def test_replica_without_rows_is_not_healthy(self):
        _, port = self.serve("--follow", "unix:nowhere.sock")
        self.assertEqual(self.ask(port, "/health")[::2], (503, "NOT_SERVING\n"))
        families = prometheus_text.parse(self.ask(port, "/metrics")[2])
        self.assertEqual(families["strata_embed_following"][1], {("strata_embed_following", ()): 0})

    def test_refuses_unusable_listen_addresses(self):
        (self.folder / "features.json").write_text(FEATURES)
        start = ("embed-server", "--features", "features.json", "--folder", "rows", "--listen", "unix:a.sock",
                 "--metrics-listen")
        self.refuse(*start, "unix:b.sock", says=["--metrics-listen", "HOST:PORT"])
        self.refuse(*start, "9101", says="HOST:PORT")
        _, port = self.serve(name="other")
        self.refuse(*start, f"127.0.0.1:{port}", says=["[http.listen]", f"127.0.0.1:{port}"])


class PrometheusText(unittest.TestCase):
    """The parser refuses what is not of the format."""

    GOOD = '# HELP a_total counts\n# TYPE a_total counter\na_total{x="1",y="\\""} 3\n'

    def test_parses_family(self):
        self.assertEqual(prometheus_text.parse(self.GOOD),
                         {"a_total": ("counter", {("a_total", (("x", "1"), ("y", '\\"'))): 3})})

    def test_refuses_every_fault(self):
        for old, new in (("a_total{", "b_total{"), (" 3\n", " 3"), (" 3", "  3"), (" 3", " three"), (" 3", " -3"),
                         ('y="\\""', 'y="""'), ('y="\\""', 'y="\\q"'), ('y="\\""', 'x="2"'), (",", ", "),
                         ("counter", "count"), ("# HELP", "#HELP"), ("# HELP a_total counts\n", ""), ("a_total", "a"),
                         ("a_total{", "1_total{"), ("} 3\n", "} 3\n\n"), ('a_total{x="1",y="\\""} 3\n', ""),
                         ("} 3\n", '} 3\na_total{y="\\"",x="1"} 4\n')):
            self.assertIn(old, self.GOOD)
            with self.assertRaises(ValueError, msg=(old, new)):
                prometheus_text.parse(self.GOOD.replace(old, new))
        head = "# HELP h times\n# TYPE h histogram\n"
        good = 'h_bucket{le="1"} 2\nh_bucket{le="+Inf"} 3\nh_sum 4\nh_count 3\n'
        prometheus_text.parse(head + good)
        for old, new in (("} 2", "} 4"), ("h_count 3", "h_count 4"), ('le="+Inf"', 'le="9"')):
            with self.assertRaises(ValueError, msg=(old, new)):
                prometheus_text.parse(head + good.replace(old, new))


if __name__ == "__main__":
    unittest.main()
