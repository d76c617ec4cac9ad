// libtorch contains a oneDNN, but exposes no function that multiplies fp32 with it and writes to a
// given buffer. The system's oneDNN is loaded with its own symbols first: if linked, it would
// resolve some names to libtorch's other version and refuse every product.
#include "strata/nn/host/sgemm.h"

#include <dlfcn.h>

#include <algorithm>
#include <initializer_list>
#include <new>
#include <type_traits>

#include "strata/base/errors.h"
#include "strata/nn/kernels/decoding.h"

namespace strata {
namespace {

// oneDNN's functions and those of its OpenMP, because the process may contain two OpenMPs.
struct OneDnn {
  using Dim = std::int64_t;
  int (*sgemm)(char transa, char transb, Dim m, Dim n, Dim k, float alpha, const float* a, Dim lda,
               const float* b, Dim ldb, float beta, float* c, Dim ldc) = nullptr;
  int (*get_max_threads)() = nullptr;
  void (*set_num_threads)(int) = nullptr;

  OneDnn() {
#if !defined(STRATA_SANITIZED)  // a sanitizer must be the only allocator
    for (const char* name : {"libdnnl.so.2", "libdnnl.so.3"})
      if (void* const library = ::dlopen(name, RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND))
        if (find(library)) return;
    sgemm = nullptr;
#endif
  }

  bool find(void* library) {
    const auto load = [&](auto& function, const char* name) {
      function =
          reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(library, name));
      return function != nullptr;
    };
    return load(sgemm, "dnnl_sgemm") && load(get_max_threads, "omp_get_max_threads") &&
           load(set_num_threads, "omp_set_num_threads");
  }
};

const OneDnn& onednn() {
  static const OneDnn loaded;
  return loaded;
}

// A matrix in BLAS form: its rows or its columns are contiguous.
struct Operand {
  at::Tensor matrix;
  std::int64_t stride;
  char transposed;  // 'N' or 'T'

  explicit Operand(const at::Tensor& input) : matrix(input) {
    const auto lies = [&](int rows, int columns) {
      return (matrix.stride(columns) == 1 || matrix.size(columns) == 1) &&
             (matrix.stride(rows) >= matrix.size(columns) || matrix.size(rows) == 1);
    };
    const bool by_columns = !lies(0, 1) && lies(1, 0);
    if (!by_columns && !lies(0, 1)) matrix = matrix.contiguous();
    const int rows = by_columns ? 1 : 0;
    transposed = by_columns ? 'T' : 'N';
    stride = std::max(matrix.stride(rows), matrix.size(1 - rows));
  }
  const float* data() const { return matrix.const_data_ptr<float>(); }
};

// Limits oneDNN to one thread: each piece of a product runs on one thread.
class OneThread {
 public:
  OneThread() : before_(onednn().get_max_threads()) {
    if (before_ != 1) onednn().set_num_threads(1);
  }
  ~OneThread() {
    if (before_ != 1) onednn().set_num_threads(before_);
  }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int before_;
};

}  // namespace

bool has_onednn() { return onednn().sgemm != nullptr; }

void onednn_sgemm(const at::Tensor& a, const at::Tensor& b, const at::Tensor& c, float beta) {
  const std::int64_t m = c.size(0), n = c.size(1), k = a.size(1);
  STRATA_CHECK(a.size(0) == m && b.size(0) == k && b.size(1) == n, "nn.sgemm");
  STRATA_CHECK(c.stride(1) == 1 || n == 1, "nn.sgemm");
  STRATA_CHECK(has_onednn(), "nn.sgemm");
  if (m == 0 || n == 0) return;
  if (k == 0) {
    if (beta == 0) c.zero_();
    return;
  }
  const Operand left(a), right(b);
  const OneThread alone;
  const int failed = onednn().sgemm(left.transposed, right.transposed, m, n, k, 1, left.data(),
                                    left.stride, right.data(), right.stride, beta,
                                    c.data_ptr<float>(), std::max(c.stride(0), n));
  constexpr int kOutOfMemory = 1;  // for packed operands and generated kernels
  if (failed == kOutOfMemory) throw std::bad_alloc();
  STRATA_CHECK_EQ(failed, 0, "nn.sgemm");
}

void onednn_sgemm_in_pieces(const at::Tensor& a, const at::Tensor& b, const at::Tensor& c,
                            float beta) {
  const std::int64_t terms = a.size(1), piece = kernels::sum_piece(terms);
  if (piece == terms) return onednn_sgemm(a, b, c, beta);
  for (std::int64_t k = 0; k < terms; k += piece) {
    const std::int64_t count = std::min(piece, terms - k);
    onednn_sgemm(a.narrow(1, k, count), b.narrow(0, k, count), c, k > 0 ? 1 : beta);
  }
}

}  // namespace strata
