"""Tests what tools/cuda_link.py accepts and refuses: links a CPU build's program with sources that
replace those for CUDA. STRATA_PROGRAM names the program."""

import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tools"))
import cuda_link

CPU_BUILD = Path(os.environ["STRATA_PROGRAM"]).parent

USES_LIBRARIES = """
namespace c10::cuda { int device_count(); struct Guard { virtual ~Guard(); void hold() const; }; }
extern "C" int ncclGetVersion(int*);
extern "C" int cublasLtCreate(void**);
namespace strata {
int use_libraries() {
  c10::cuda::Guard().hold();
  return c10::cuda::device_count() + ncclGetVersion(nullptr) + cublasLtCreate(nullptr);
}
}
"""


class Link(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.out = Path(self.folder.name)

    def tearDown(self):
        self.folder.cleanup()

    def link(self, source, *left_out):
        """Exit code and output for a CUDA build whose only source is `source`."""
        (self.out / "kernel.cpp").write_text(source)
        compiler = cuda_link.link_command(CPU_BUILD)[0]
        subprocess.run([compiler, "-std=c++20", "-fPIC", "-c", "kernel.cpp", "-o", "kernel.o"], cwd=self.out,
                       check=True)
        (self.out / "main.cpp").write_text("int main() { return 0; }")
        subprocess.run([compiler, "-c", "main.cpp", "-o", "main.o"], cwd=self.out, check=True)
        (self.out / "objects.txt").write_text(f"{self.out}/kernel.o\n")
        (self.out / "test_objects.txt").write_text(f"{self.out}/main.o\n")
        done = subprocess.run([sys.executable, ROOT / "tools/cuda_link.py", "--cpu-build", CPU_BUILD,
                               "--toolkit", self.out, "--out", self.out, "--sources", "1", "--left-out", *left_out],
                              capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr

    def test_accepts_symbols_of_cuda_libtorch(self):
        code, text = self.link(USES_LIBRARIES)
        self.assertEqual(code, 0, text)
        self.assertRegex(text, r"\d names of c10_cuda")
        self.assertIn("1 names of cuBLASLt", text)
        self.assertIn("1 names of NCCL", text)
        self.assertIn("1 sources compiled for sm_90a and linked; none was run", text)

    def test_reports_undefined_function(self):
        code, text = self.link("namespace strata { void nowhere(int); void f() { nowhere(1); } }")
        self.assertEqual(code, 1, text)
        self.assertIn("no library defines strata::nowhere(int)", text)

    def test_reports_undefined_function_of_cpu_library(self):
        code, text = self.link("namespace c10 { int nowhere(); } int f() { return c10::nowhere(); }")
        self.assertEqual(code, 1, text)
        self.assertIn("no library defines c10::nowhere()", text)

    def test_reports_duplicate_function(self):
        code, text = self.link("namespace strata { const char* name_of(struct Nothing*) { return nullptr; } }\n"
                               'extern "C" int main() { return 0; }')
        self.assertEqual(code, 1, text)
        self.assertIn("do not link", text)
        self.assertIn("main", text)

    def test_names_source_that_is_not_linked(self):
        left_out = self.out / "product_cuda.cpp"
        left_out.write_text("void somewhere(int) {}")
        code, text = self.link("namespace strata { void somewhere(int); void f() { somewhere(1); } }", left_out)
        self.assertEqual(code, 0, text)
        self.assertIn("defined in a source that is left out: strata::somewhere(int)", text)
        self.assertIn("left out for want of a header: product_cuda.cpp", text)
        code, text = self.link("namespace strata { void nowhere(int); void f() { nowhere(1); } }", left_out)
        self.assertEqual(code, 1, text)


class Names(unittest.TestCase):
    def test_maps_names_to_libraries_by_namespace_or_prefix(self):
        for name in ("_ZN3c104cuda12device_countEv", "_ZTVN3c104cuda4impl13CUDAGuardImplE",
                     "_ZNK2at4cuda9CUDAGraph6replayEv"):
            self.assertEqual(cuda_link.library_of(name), "c10_cuda, torch_cuda", name)
        self.assertEqual(cuda_link.library_of("cublasLtMatmul"), "cuBLASLt")
        self.assertEqual(cuda_link.library_of("ncclSend"), "NCCL")
        for name in ("_ZN6strata4cuda1fEv", "_ZN3c106nowhereEv", "cudaMalloc", "nccl_send", "_ZN3c1012cuda_nothingEv"):
            self.assertIsNone(cuda_link.library_of(name), name)

    def test_shortens_names_to_source_spelling(self):
        for text, name in (("strata::product(at::Tensor const&)", "product"),
                           ("strata::Lt::Lt(int)", "Lt"),
                           ("vtable for strata::Lt", "Lt"),
                           ("void strata::fill<float>(float*)", "fill")):
            self.assertEqual(cuda_link.last_name(text), name)


if __name__ == "__main__":
    unittest.main()
