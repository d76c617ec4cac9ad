"""Tests the manifests of deploy/: their fields are those of Kubernetes, their references exist, and
their commands run.

The first two need PyYAML, which comes with the tests' own Python, and are skipped without it.
"""

import os
import pathlib
import re
import signal
import subprocess
import time
import unittest

from strata_program import PROGRAM, ProgramTest, free_ports

try:
    import yaml
except ImportError:
    yaml = None

DEPLOY = pathlib.Path(__file__).resolve().parents[2] / "deploy"
MANIFESTS = sorted(DEPLOY.glob("kubernetes-*.yaml"))

# The used parts of the Kubernetes API (v1.29): a dict has these fields and no others, [x] is a list
# of x, a type stands for a value, a set for one of its values; a field with ! is required.
PROBE = {"exec!": {"command!": [str]}, "periodSeconds": int, "timeoutSeconds": int, "failureThreshold": int}
POD = {
    "subdomain": str, "restartPolicy": {"Never", "Always"}, "terminationGracePeriodSeconds": int,
    "securityContext": {"runAsNonRoot": bool, "runAsUser": int, "fsGroup": int},
    "containers!": [{
        "name!": str, "image!": str, "command": [str], "args": [str], "workingDir": str,
        "env": [{"name!": str, "value": str,
                 "valueFrom": {"fieldRef": {"fieldPath!": str}, "secretKeyRef": {"name!": str, "key!": str}}}],
        "ports": [{"name": str, "containerPort!": int}],
        "startupProbe": PROBE, "readinessProbe": PROBE, "livenessProbe": PROBE,
        "resources": {"requests": {"cpu": str, "memory": str}, "limits": {"memory": str}},
        "volumeMounts": [{"name!": str, "mountPath!": str, "readOnly": bool}],
    }],
    "volumes": [{"name!": str, "configMap": {"name!": str}, "secret": {"secretName!": str, "defaultMode": int},
                 "persistentVolumeClaim": {"claimName!": str}}],
}
TEMPLATE = {"metadata": {"labels": {"app": str},
                         "annotations": {"prometheus.io/scrape": str, "prometheus.io/port": str}}, "spec!": POD}
KINDS = {
    ("v1", "Service"): {"spec!": {"clusterIP": {"None"}, "publishNotReadyAddresses": bool,
                                  "selector!": {"job-name": str, "app": str},
                                  "ports!": [{"name": str, "port!": int}]}},
    ("v1", "ConfigMap"): {"data!": {"recipe.yaml": str}},
    ("batch/v1", "Job"): {"spec!": {"completionMode": {"Indexed"}, "completions": int, "parallelism": int,
                                    "backoffLimit": int, "template!": TEMPLATE}},
    ("apps/v1", "StatefulSet"): {"spec!": {
        "serviceName!": str, "replicas": int, "podManagementPolicy": {"Parallel", "OrderedReady"},
        "selector!": {"matchLabels!": {"app": str}}, "template!": TEMPLATE,
        "volumeClaimTemplates": [{"metadata!": {"name!": str}, "spec!": {
            "accessModes!": [str], "resources!": {"requests!": {"storage!": str}}}}]}},
}


def problems(value, schema, place):
    if isinstance(schema, type):
        return [] if type(value) is schema else [f"{place}: {value!r} is no {schema.__name__}"]
    if isinstance(schema, set):
        return [] if value in schema else [f"{place}: {value!r} is none of {schema}"]
    if isinstance(schema, list):
        if not isinstance(value, list) or not value:
            return [f"{place}: not a list"]
        return [p for i, each in enumerate(value) for p in problems(each, schema[0], f"{place}[{i}]")]
    if not isinstance(value, dict):
        return [f"{place}: not a section"]
    fields = {name.rstrip("!"): (name.endswith("!"), inner) for name, inner in schema.items()}
    found = [f"{place}.{name} is missing" for name, (needed, _) in fields.items() if needed and name not in value]
    for name, inner in value.items():
        found += problems(inner, fields[name][1], f"{place}.{name}") if name in fields else [
            f"{place}.{name}: Kubernetes has no such field"]
    return found


def documents(path):
    return list(yaml.safe_load_all(path.read_text()))


@unittest.skipUnless(yaml, "no PyYAML")
class Manifests(unittest.TestCase):
    def test_uses_only_fields_of_kubernetes(self):
        self.assertEqual([path.name for path in MANIFESTS], ["kubernetes-job.yaml", "kubernetes-recommender.yaml"])
        for path in MANIFESTS:
            for document in documents(path):
                kind = document["apiVersion"], document["kind"]
                schema = {"apiVersion!": str, "kind!": str, "metadata!": {"name!": str}, **KINDS[kind]}
                self.assertEqual(problems(document, schema, path.name), [])

    def test_references_exist(self):
        for path in MANIFESTS:
            all_of = {}
            for document in documents(path):
                all_of.setdefault(document["kind"], {})[document["metadata"]["name"]] = document["spec" if "spec" in document
                                                                                                else "data"]
            for kind in ("Job", "StatefulSet"):
                for name, spec in all_of.get(kind, {}).items():
                    self.check_workload(kind, name, spec, all_of)
            for name, spec in all_of.get("Job", {}).items():
                self.assertEqual(spec["completions"], spec["parallelism"])
                env = {each["name"]: each.get("value") for each in spec["template"]["spec"]["containers"][0]["env"]}
                self.assertEqual(env["WORLD_SIZE"], str(spec["completions"]))
                self.assertEqual(env["MASTER_ADDR"], f"{name}-0.{spec['template']['spec']['subdomain']}")
                self.assertEqual(int(env["MASTER_PORT"]), all_of["Service"][name]["ports"][0]["port"])

    def check_workload(self, kind, name, spec, all_of):
        pod = spec["template"]["spec"]
        service = pod["subdomain"] if kind == "Job" else spec["serviceName"]
        self.assertIn(service, all_of["Service"])
        selected = all_of["Service"][service]["selector"]
        self.assertEqual(selected, {"job-name": name} if kind == "Job" else spec["template"]["metadata"]["labels"])
        volumes = {volume["name"]: volume for volume in pod["volumes"]}
        for volume in volumes.values():
            if "configMap" in volume:
                self.assertIn(volume["configMap"]["name"], all_of["ConfigMap"])
        mounted = {mount["name"] for mount in pod["containers"][0]["volumeMounts"]}
        claims = {claim["metadata"]["name"] for claim in spec.get("volumeClaimTemplates", [])}
        self.assertEqual(mounted, set(volumes) | claims)
        if kind == "StatefulSet":
            self.assertEqual(spec["selector"]["matchLabels"], spec["template"]["metadata"]["labels"])
            port = all_of["Service"][service]["ports"][0]["port"]
            self.assertEqual(pod["containers"][0]["ports"][0]["containerPort"], port)
            (recipe,) = [yaml.safe_load(each["recipe.yaml"]) for each in all_of["ConfigMap"].values()]
            command = pod["containers"][0]["command"][-1]
            following = re.search(r'--follow "(\S+)\$\{HOSTNAME##\*-\}(\S+)"', command)
            if following:
                self.assertEqual(recipe["embedding"]["servers"],
                                 [f"{following[1]}{shard}{following[2]}" for shard in range(spec["replicas"])])
                return
            self.assertEqual(recipe["embedding"]["servers"],
                             [f"{name}-{shard}.{service}:{port}" for shard in range(spec["replicas"])])


CERTIFICATES = """\
openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=rows -keyout authority.key -out authority.pem
openssl req -newkey rsa:2048 -nodes -subj /CN=rows -keyout tls.key -out tls.csr
printf 'subjectAltName=DNS:*.strata-rows,DNS:*.strata-copies,DNS:localhost' > names
openssl x509 -req -in tls.csr -CA authority.pem -CAkey authority.key -CAcreateserial -days 2 -extfile names -out tls.pem
"""


class Commands(ProgramTest):
    def test_commands_start_row_servers_and_trainers(self):
        text = (DEPLOY / "kubernetes-recommender.yaml").read_text()
        block = re.search(r"  recipe\.yaml: \|\n((?:    .*\n)+)", text)[1]
        recipe = "".join(line[4:] for line in block.splitlines(keepends=True))
        serve, copy = re.findall(r"- (exec strata embed-server .*)\n", text)
        health = re.search(r'sh, -c, "(strata embed-server .*)"\]', text)[1]
        (self.folder / "clicks.tsv").write_text("click\tprice\tage\tuser\twords\n" + "".join(
            f"{i % 3 // 2}\t{i % 7}\t{i % 50}\tu{i % 40}\tw{i % 5} w{i % 9}\n" for i in range(4000)))
        made = subprocess.run(["sh", "-ec", CERTIFICATES], cwd=self.folder, capture_output=True)
        self.assertEqual(made.returncode, 0, made.stderr)
        for name, file in (("CERTIFICATE", "tls.pem"), ("KEY", "tls.key"), ("AUTHORITY", "authority.pem")):
            self.assertIn(f"{{name: STRATA_TLS_{name}, value: /tls/{file}}}", text)
            self.environment[f"STRATA_TLS_{name}"] = file
        bin_folder = self.folder / "bin"
        bin_folder.mkdir()
        (bin_folder / "strata").symlink_to(PROGRAM)
        self.environment["PATH"] = f"{bin_folder}:{os.environ['PATH']}"
        # Only names and places differ from those in a cluster.
        *ports, copied = free_ports(3)
        for shard, port in enumerate(ports):
            recipe = recipe.replace(f"strata-rows-{shard}.strata-rows:7001", f"localhost:{port}")
        self.assertNotIn("strata-rows", recipe)
        (self.folder / "recipe.yaml").write_text(recipe)
        servers = []
        for shard, port in enumerate(ports):
            command = (serve.replace("/recipe/", "").replace("/rows/", f"rows-{shard}/")
                       .replace("0.0.0.0:7001", f"0.0.0.0:{port}").replace("0.0.0.0:9101", "127.0.0.1:0"))
            server = subprocess.Popen(["sh", "-c", command], cwd=self.folder, text=True,
                                      env=dict(self.environment, HOSTNAME=f"strata-rows-{shard}"),
                                      stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            self.addCleanup(server.communicate)
            self.addCleanup(server.kill)
            servers.append(server)
            line = server.stdout.readline()
            self.assertIn(f"embed-server shard {shard} of 2", line, "" if line else server.stderr.read())
        command = (copy.replace("/recipe/", "").replace("/rows/", "").replace("0.0.0.0:7001", f"0.0.0.0:{copied}")
                   .replace("0.0.0.0:9101", "127.0.0.1:0")
                   .replace('strata-rows-${HOSTNAME##*-}.strata-rows:7001', f"localhost:{ports[1]}"))
        replica = subprocess.Popen(["sh", "-c", command], cwd=self.folder, text=True,
                                   env=dict(self.environment, HOSTNAME="strata-copies-1"),
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(replica.communicate)
        self.addCleanup(replica.kill)
        self.assertIn("embed-server shard 1 of 2", replica.stdout.readline())
        for process in (*servers, replica):
            self.assertIn("/metrics", process.stdout.readline())

        def is_healthy(port):
            return subprocess.run(["sh", "-c", health.replace("localhost:7001", f"localhost:{port}")], cwd=self.folder,
                                  env=self.environment, capture_output=True).returncode == 0

        self.assertTrue(all(is_healthy(port) for port in ports))
        steps = ("--set", "train.epochs=0", "--set", "train.steps=5", "--set", "train.mini_batch=64")
        out = self.succeed("plan", "recipe.yaml", "--estimate", *steps)
        self.assertIn("on 2 shards of 10.00 GiB", out)
        self.succeed("train", "recipe.yaml", "--metrics", "metrics.jsonl", *steps)
        self.assertEqual(len(self.metrics("metrics.jsonl")), 5)
        digests = [self.succeed("embed-server", "--ask", "digest 5", "--listen", f"localhost:{port}")
                   for port in (ports[1], copied)]
        self.assertEqual(*digests)
        deadline = time.time() + 60  # the reply may precede the change by a moment
        while not is_healthy(copied) and time.time() < deadline:
            time.sleep(0.1)
        self.assertTrue(is_healthy(copied))
        # as when a pod stops: the signal reaches the server through the shell
        servers[0].send_signal(signal.SIGTERM)
        self.assertEqual(servers[0].wait(timeout=60), 0)
        self.assertFalse(is_healthy(ports[0]))
        for name in ("CERTIFICATE", "KEY", "AUTHORITY"):
            del self.environment[f"STRATA_TLS_{name}"]
        self.refuse("embed-server", "recipe.yaml", "--shard", "0", "--folder", "rows", "--listen", "0.0.0.0:0",
                    says=["TLS", "STRATA_TLS_KEY"])


if __name__ == "__main__":
    unittest.main()
