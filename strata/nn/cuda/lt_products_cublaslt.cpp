// cuBLASLt reads matrices by columns, so every product is written transposed: yᵀ = w xᵀ, dxᵀ = wᵀ
// dyᵀ, dwᵀ += xᵀ dy. A row of the result in its epilogues is a column in Strata.
//
// Its heuristic depends on alignment. It gets 16 bytes if operands have that or more, so that
// layers at other addresses get the same algorithm. Partial sums of a split product are added in
// fp32 in a fixed order: the schemes that add in place or in the type of the output are not
// allowed.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/cuda/CUDAStream.h>
#include <cublasLt.h>

#include <array>
#include <compare>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include "strata/base/errors.h"
#include "strata/device/determinism.h"
#include "strata/nn/cuda/lt_products.h"

namespace strata {
namespace {

constexpr std::size_t kWorkspaceBytes = kFixedWorkspaceBytes;  // as plans count it
constexpr std::uint32_t kAlignment = 16;                       // bytes

void check_status(cublasStatus_t status, const char* what) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw InternalError({.operation = "nn.lt_product",
                       .what = "cuBLASLt refused a product",
                       .expected = "CUBLAS_STATUS_SUCCESS of " + std::string(what),
                       .got = std::to_string(static_cast<int>(status))});
}

template <typename T, cublasStatus_t (*destroy)(T)>
struct Destroy {
  void operator()(std::remove_pointer_t<T>* handle) const { destroy(handle); }
};
template <typename T, cublasStatus_t (*destroy)(T)>
using Handle = std::unique_ptr<std::remove_pointer_t<T>, Destroy<T, destroy>>;

using Multiplication = Handle<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>;
using Layout = Handle<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;
using Preference = Handle<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>;

cudaDataType type_of(at::ScalarType dtype) {
  switch (dtype) {
    case at::kFloat:
      return CUDA_R_32F;
    case at::kBFloat16:
      return CUDA_R_16BF;
    case at::kHalf:
      return CUDA_R_16F;
    default:
      STRATA_CHECK(false, "nn.lt_product");
      return CUDA_R_32F;
  }
}

// A matrix as cuBLASLt sees the tensor: its columns are the tensor's rows.
struct Operand {
  const at::Tensor& tensor;
  bool transposed = false;

  std::int64_t lead() const { return tensor.size(0) > 1 ? tensor.stride(0) : tensor.size(1); }
  std::uint32_t alignment() const {
    const auto address = reinterpret_cast<std::uintptr_t>(tensor.const_data_ptr());
    const auto row = static_cast<std::uintptr_t>(lead()) * tensor.element_size();
    std::uint32_t bytes = kAlignment;
    while ((address | row) % bytes != 0) bytes /= 2;
    return bytes;
  }
  Layout layout() const {
    STRATA_CHECK(tensor.dim() == 2 && tensor.stride(1) == 1, "nn.lt_product");
    cublasLtMatrixLayout_t made = nullptr;
    check_status(cublasLtMatrixLayoutCreate(&made, type_of(tensor.scalar_type()), tensor.size(1),
                                            tensor.size(0), lead()),
                 "cublasLtMatrixLayoutCreate");
    return Layout(made);
  }
};

template <typename T>
void set_attribute(const Multiplication& to, cublasLtMatmulDescAttributes_t what, const T& value) {
  check_status(cublasLtMatmulDescSetAttribute(to.get(), what, &value, sizeof(value)),
               "cublasLtMatmulDescSetAttribute");
}
template <typename T>
void set_attribute(const Preference& to, cublasLtMatmulPreferenceAttributes_t what,
                   const T& value) {
  check_status(cublasLtMatmulPreferenceSetAttribute(to.get(), what, &value, sizeof(value)),
               "cublasLtMatmulPreferenceSetAttribute");
}

// The epilogue of a product. `vector` is the bias or receives the sums; `input` is the GELU's
// input, which forward writes and backward reads.
struct Epilogue {
  cublasLtEpilogue_t kind = CUBLASLT_EPILOGUE_DEFAULT;
  at::Tensor vector = {};
  at::Tensor input = {};

  void write_to(const Multiplication& multiplication) const {
    set_attribute(multiplication, CUBLASLT_MATMUL_DESC_EPILOGUE, kind);
    if (vector.defined()) {
      set_attribute(multiplication, CUBLASLT_MATMUL_DESC_BIAS_POINTER, vector.const_data_ptr());
      set_attribute(multiplication, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE,
                    type_of(vector.scalar_type()));
    }
    if (input.defined()) {
      set_attribute(multiplication, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER,
                    input.const_data_ptr());
      set_attribute(multiplication, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, Operand{input}.lead());
    }
  }
};

// Whether cuBLASLt can compute GELU.
bool takes_gelu(const at::Tensor& x) {
  return x.scalar_type() != at::kFloat && Operand{x}.alignment() == kAlignment;
}

class CublasLtProducts final : public CudaProducts {
 public:
  at::Tensor product(const at::Tensor& x, const at::Tensor& weight,
                     const at::Tensor& bias) const override {
    at::Tensor y = at::empty({x.size(0), weight.size(0)}, x.options());
    const Epilogue epilogue = bias.defined() ? Epilogue{CUBLASLT_EPILOGUE_BIAS, bias} : Epilogue{};
    must(multiply({weight, /*transposed=*/true}, {x}, y, epilogue, /*add=*/false));
    return y;
  }

  void input_gradient(at::Tensor& dx, const at::Tensor& dy,
                      const at::Tensor& weight) const override {
    must(multiply({weight}, {dy}, dx, {}, /*add=*/false));
  }

  void add_weight_gradient(at::Tensor& sum, const at::Tensor& dy,
                           const at::Tensor& x) const override {
    STRATA_CHECK(sum.scalar_type() == at::kFloat, "nn.lt_product");
    must(multiply({x}, {dy, /*transposed=*/true}, sum, {}, /*add=*/true));
  }

  bool has_epilogues() const override { return true; }

  bool product_and_gelu(at::Tensor& y, at::Tensor& activated, const at::Tensor& x,
                        const at::Tensor& weight, const at::Tensor& bias) const override {
    if (!bias.defined() || !takes_gelu(y) || !takes_gelu(activated)) return false;
    return multiply({weight, /*transposed=*/true}, {x}, activated,
                    {CUBLASLT_EPILOGUE_GELU_AUX_BIAS, bias, y}, /*add=*/false);
  }

  bool input_gradient_of_gelu(at::Tensor& dx, const at::Tensor& dy, const at::Tensor& weight,
                              const at::Tensor& x) const override {
    if (!takes_gelu(dx) || !takes_gelu(x)) return false;
    return multiply({weight}, {dy}, dx, {CUBLASLT_EPILOGUE_DGELU, {}, x}, /*add=*/false);
  }

  bool add_weight_gradient_and_sum(at::Tensor& sum, at::Tensor& columns, const at::Tensor& dy,
                                   const at::Tensor& x) const override {
    STRATA_CHECK(sum.scalar_type() == at::kFloat && columns.scalar_type() == at::kFloat,
                 "nn.lt_product");
    return multiply({x}, {dy, /*transposed=*/true}, sum, {CUBLASLT_EPILOGUE_BGRADB, columns},
                    /*add=*/true);
  }

 private:
  // Everything that an algorithm may depend on.
  struct Key {
    int device;
    std::array<std::int64_t, 10> sizes;
    std::array<int, 6> types;  // and flags of the product
    std::array<std::uint32_t, 4> alignments;
    auto operator<=>(const Key&) const = default;
  };

  static void must(bool multiplied) { STRATA_CHECK(multiplied, "nn.lt_product"); }

  // to (+)= a b and its epilogue. Returns false if cuBLASLt has no algorithm for it.
  bool multiply(const Operand& a, const Operand& b, const at::Tensor& to, const Epilogue& epilogue,
                bool add) const {
    const Operand result{to};
    const int device = to.device().index();
    cublasLtMatmulDesc_t made = nullptr;
    check_status(cublasLtMatmulDescCreate(&made, CUBLAS_COMPUTE_32F, CUDA_R_32F),
                 "cublasLtMatmulDescCreate");
    const Multiplication multiplication(made);
    set_attribute(multiplication, CUBLASLT_MATMUL_DESC_TRANSA,
                  a.transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
    set_attribute(multiplication, CUBLASLT_MATMUL_DESC_TRANSB,
                  b.transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
    epilogue.write_to(multiplication);
    const Layout layout_a = a.layout(), layout_b = b.layout(), layout_to = result.layout();
    const std::uint32_t alignments[] = {a.alignment(), b.alignment(), result.alignment()};
    const bool has_input = epilogue.input.defined();
    const Key key{
        device,
        {a.tensor.size(0), a.tensor.size(1), a.lead(), b.tensor.size(0), b.tensor.size(1), b.lead(),
         to.size(0), to.size(1), result.lead(), has_input ? Operand{epilogue.input}.lead() : 0},
        {a.transposed, b.transposed, add, static_cast<int>(epilogue.kind),
         static_cast<int>(a.tensor.scalar_type()), static_cast<int>(to.scalar_type())},
        {alignments[0], alignments[1], alignments[2],
         has_input ? Operand{epilogue.input}.alignment() : 0}};
    const std::optional<cublasLtMatmulAlgo_t> algorithm =
        algorithm_for(key, multiplication, layout_a, layout_b, layout_to, alignments);
    if (!algorithm) return false;
    const at::Tensor workspace =
        at::empty({static_cast<std::int64_t>(kWorkspaceBytes)}, to.options().dtype(at::kByte));
    const float alpha = 1, beta = add ? 1 : 0;
    check_status(
        cublasLtMatmul(handle(device), multiplication.get(), &alpha, a.tensor.const_data_ptr(),
                       layout_a.get(), b.tensor.const_data_ptr(), layout_b.get(), &beta,
                       to.data_ptr(), layout_to.get(), to.data_ptr(), layout_to.get(), &*algorithm,
                       workspace.data_ptr(), kWorkspaceBytes,
                       c10::cuda::getCurrentCUDAStream(to.device().index()).stream()),
        "cublasLtMatmul");
    return true;
  }

  // Also remembers that there is none.
  std::optional<cublasLtMatmulAlgo_t> algorithm_for(const Key& key,
                                                    const Multiplication& multiplication,
                                                    const Layout& a, const Layout& b,
                                                    const Layout& to,
                                                    const std::uint32_t (&alignments)[3]) const {
    const cublasLtHandle_t lt = handle(key.device);
    const std::scoped_lock lock(mutex_);
    if (const auto known = algorithms_.find(key); known != algorithms_.end()) return known->second;
    cublasLtMatmulPreference_t made = nullptr;
    check_status(cublasLtMatmulPreferenceCreate(&made), "cublasLtMatmulPreferenceCreate");
    const Preference preference(made);
    set_attribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                  std::uint64_t{kWorkspaceBytes});
    set_attribute(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                  std::uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
    set_attribute(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignments[0]);
    set_attribute(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignments[1]);
    set_attribute(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignments[2]);
    set_attribute(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignments[2]);
    cublasLtMatmulHeuristicResult_t found{};
    int count = 0;
    const cublasStatus_t status =
        cublasLtMatmulAlgoGetHeuristic(lt, multiplication.get(), a.get(), b.get(), to.get(),
                                       to.get(), preference.get(), 1, &found, &count);
    if (status != CUBLAS_STATUS_NOT_SUPPORTED)
      check_status(status, "cublasLtMatmulAlgoGetHeuristic");
    std::optional<cublasLtMatmulAlgo_t> algorithm;
    if (status == CUBLAS_STATUS_SUCCESS && count == 1 && found.state == CUBLAS_STATUS_SUCCESS)
      algorithm = found.algo;
    return algorithms_.emplace(key, algorithm).first->second;
  }

  // Never destroyed: the device may be gone at exit.
  cublasLtHandle_t handle(int device) const {
    const std::scoped_lock lock(mutex_);
    cublasLtHandle_t& known = handles_[device];
    if (!known) check_status(cublasLtCreate(&known), "cublasLtCreate");
    return known;
  }

  mutable std::mutex mutex_;
  mutable std::map<int, cublasLtHandle_t> handles_;
  mutable std::map<Key, std::optional<cublasLtMatmulAlgo_t>> algorithms_;
};

}  // namespace

const CudaProducts* lt_products() {
  static const CublasLtProducts products;
  return &products;
}

}  // namespace strata
