"""A program with the task text alone: it needs no library of the recommender's and says what it was built without."""

import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

from strata_program import PROGRAM, ProgramTest

ROOT = pathlib.Path(__file__).resolve().parents[2]
FULL_PROGRAM = os.environ["STRATA_FULL_PROGRAM"]
BUILD = pathlib.Path(os.environ["STRATA_BUILD"])
LIBRARIES = re.compile(r"grpc|gpr\b|absl|protobuf|protoc|rocksdb|libz\b|/z\b|-lz\b", re.IGNORECASE)
FOLDERS = re.compile(r"strata/(rowserver|tabular|embed|http|openai|kserve|cli/server|(task|run|cli)/recommender)/")
WITHOUT = "this program was built without task 'recommender'"


def output(*command, **options):
    return subprocess.run(command, check=True, capture_output=True, text=True, **options).stdout


class TextProgram(ProgramTest):
    def test_links_no_library_of_recommender(self):
        needed = re.findall(r"NEEDED.*\[(.*)\]", output("readelf", "-d", PROGRAM))
        self.assertIn("libtorch_cpu.so", needed)
        self.assertEqual([name for name in needed if LIBRARIES.search(name)], [])
        # The search finds them where they are.
        self.assertTrue([name for name in re.findall(r"NEEDED.*\[(.*)\]", output("readelf", "-d", FULL_PROGRAM))
                         if LIBRARIES.search(name)])

    def test_trains_equal_losses_as_program_with_all_tasks(self):
        losses = []
        for program in (PROGRAM, FULL_PROGRAM):
            subprocess.run([program, "train", "recipe.yaml", "--metrics", "m.jsonl"], cwd=self.folder, check=True,
                           capture_output=True)
            losses.append([step["loss_hex"] for step in self.metrics("m.jsonl")])
        self.assertEqual(len(losses[0]), 8)
        self.assertEqual(losses[0], losses[1])

    def test_refuses_recommender_by_name_of_task(self):
        fields = output(FULL_PROGRAM, "options", "recommender")
        kinds = re.findall(r"\b(dlrm|dcn|deep_wide)\b", fields)
        self.assertEqual(set(kinds), {"dlrm", "dcn", "deep_wide"})
        for verb in ("plan", "train", "verify"):
            for kind in set(kinds):
                (self.folder / "other.yaml").write_text(f"model:\n  kind: {kind}\n")
                self.refuse(verb, "other.yaml", says=["[task.kinds] other.yaml:2:9: " + WITHOUT, "make build"])
        self.refuse("plan", "recipe.yaml", "--set", "task=recommender", says=["--set", WITHOUT])
        # A kind that no task has is another error.
        self.refuse("plan", "recipe.yaml", "--set", "model.kind=dlrn", says=["model.kind", "gpt, llama"])
        self.refuse("plan", "recipe.yaml", "--set", "task=recomender", says=["task", "text"])

    def test_lists_available_verbs_and_names_missing_ones(self):
        listed = self.succeed("--help") + self.succeed("size", "--help") + self.succeed("options")
        for name in ("train", "generate", "parameters", "model.layers"):
            self.assertIn(name, listed)
        self.assertIsNone(re.search(r"\n  (embed-server|convert|row|embeddings) |recommender|dlrm", listed))
        for words in (("convert", "a", "b"), ("embed-server", "--ask", "health"), ("row", "--help"),
                      ("size", "embeddings", "6T")):
            self.refuse(*words, says=[WITHOUT, "make build"])
        self.refuse("serve", "folder", "--listen", "127.0.0.1:0", says=["built without the server", "make build"])
        self.assertNotIn("\n  serve ", listed)
        self.assertNotIn("convert", self.refuse("convrt", says="no such verb"))


class Configuration(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def configure(self, tasks):
        """As on a machine that lacks what the recommender needs."""
        tool = self.folder / "pkg-config"
        tool.write_text('#!/bin/sh\ncase "$*" in *rocksdb* | *grpc* | *protobuf*) exit 1 ;; esac\n'
                        f'exec {shutil.which("pkg-config")} "$@"\n')
        tool.chmod(0o755)
        cache = dict(re.findall(r"^(\w+):\w+=(.*)$", (BUILD / "CMakeCache.txt").read_text(), re.MULTILINE))
        kept = [f"-D{key}={cache[key]}" for key in ("CMAKE_C_COMPILER", "CMAKE_CXX_COMPILER", "CMAKE_BUILD_TYPE",
                                                    "STRATA_UNITY")]
        return subprocess.run(["cmake", "-S", ROOT, "-B", self.folder / "build", "-G", "Ninja", *kept,
                               f"-DPKG_CONFIG_EXECUTABLE={tool}", "-DSTRATA_TESTS=OFF",
                               "-DCMAKE_DISABLE_FIND_PACKAGE_ZLIB=ON", f"-DSTRATA_TASKS={tasks}", "-DSTRATA_SERVER=OFF"],
                              capture_output=True, text=True)

    def test_configures_without_libraries_of_recommender(self):
        self.assertNotEqual(self.configure("text;recommender").returncode, 0)
        shutil.rmtree(self.folder / "build")
        done = self.configure("text")
        self.assertEqual(done.returncode, 0, done.stderr)
        sources = output("ninja", "-C", self.folder / "build", "-t", "commands", "strata")
        linked = sources.strip().splitlines()[-1]
        sources += "".join(path.read_text() for path in self.folder.rglob("unity_*.cxx"))
        self.assertTrue("strata/task/no_recommender/" in sources)
        self.assertTrue("strata/cli/no_server/" in sources)
        self.assertEqual(FOLDERS.findall(sources), [])
        self.assertEqual(re.findall(r"\S*(?:grpc|rocksdb|protobuf|rowserver|tabular|embed|libz\.|-lz\b)\S*", linked), [])

    def test_refuses_unknown_or_required_tasks(self):
        for tasks, says in (("text;image", "no task 'image'"), ("recommender", "every program needs task 'text'")):
            done = self.configure(tasks)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(says, " ".join(done.stderr.split()))

    def test_demo_keeps_tasks_of_configured_folder(self):
        shutil.copy(ROOT / "Makefile", self.folder)

        def commands(target):
            return output("make", "-n", target, cwd=self.folder)
        cache = self.folder / "build/release/CMakeCache.txt"
        self.assertIn("STRATA_TASKS=text ", commands("demo"))
        cache.parent.mkdir(parents=True)
        for kept in ("STRATA_TASKS:STRING=text", "STRATA_TASKS:UNINITIALIZED=text"):
            cache.write_text(f"A:B=c\n{kept}\n")
            self.assertIn("STRATA_TASKS=text ", commands("demo"), kept)
            self.assertIn("bootstrap.sh text", commands("demo"))
        for kept in ("STRATA_TASKS:STRING=text;recommender", "CMAKE_BUILD_TYPE:STRING=Release"):
            cache.write_text(f"A:B=c\n{kept}\n")
            self.assertIn('STRATA_TASKS="text;recommender;graph"', commands("demo"), kept)
            self.assertNotIn("bootstrap.sh text", commands("demo"))
        cache.write_text("STRATA_TASKS:STRING=text\n")
        for target in ("build", "build-all"):
            self.assertIn('STRATA_TASKS="text;recommender;graph"', commands(target))


if __name__ == "__main__":
    unittest.main()
