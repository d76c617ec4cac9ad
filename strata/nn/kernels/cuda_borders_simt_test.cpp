// Kernels move 16 bytes at once if all their arrays are aligned to 16 bytes. Each array in turn is
// misaligned: the bits must be the same, and no vector access may touch it (read_packed checks).
#include <gtest/gtest.h>

#include <functional>

#include "strata/device/simt/simt_array_test.h"
#include "strata/nn/kernels/cuda_kernels.h"

namespace strata {
namespace {

using kernels::Element;
using simt::SimtArray;
using simt::SimtVector;

constexpr std::int64_t kRows = 3, kColumns = 64, kAll = kRows * kColumns;

struct Array {
  Element element;
  std::int64_t n;
};

class CudaBorders : public testing::Test {
 protected:
  using Pointers = std::vector<void*>;
  using Kernel = std::function<void(const Pointers&)>;

  void SetUp() override {
    if (!simt::has_machine()) GTEST_SKIP() << "no CUDA device";
  }

  void expect_the_same_off_borders(const char* name, const std::vector<Array>& arrays,
                                   const Kernel& kernel) {
    SCOPED_TRACE(name);
    const std::vector<SimtArray> expected = results(arrays, kernel, -1);
    for (int off = 0; off < static_cast<int>(arrays.size()); ++off) {
      const std::vector<SimtArray> found = results(arrays, kernel, off);
      for (std::size_t i = 0; i < arrays.size(); ++i) {
        ASSERT_TRUE(same_bits(found[i], expected[i]))
            << "array " << i << ", off the border " << off;
        ASSERT_TRUE(found[i].is_whole()) << "array " << i << ", off the border " << off;
      }
    }
  }

 private:
  // All arrays after the kernel; array `off` begins one element after an aligned address.
  static std::vector<SimtArray> results(const std::vector<Array>& arrays, const Kernel& kernel,
                                        int off) {
    std::mt19937 generator(5);
    std::vector<SimtArray> all;
    Pointers pointers;
    for (int i = 0; i < static_cast<int>(arrays.size()); ++i)
      all.push_back(SimtArray::random(arrays[i].element, arrays[i].n, generator, 1, i == off));
    for (SimtArray& array : all) pointers.push_back(array.device());
    kernel(pointers);
    for (SimtArray& array : all) array.fetch();
    return all;
  }
};

float* floats(void* at) { return static_cast<float*>(at); }

TEST_F(CudaBorders, ElementwiseKernelsKeepBitsWhenMisaligned) {
  for (const Element e : {Element::kFp32, Element::kBf16, Element::kFp16}) {
    const Array all{e, kAll}, wide{e, 2 * kAll}, row{e, kColumns};
    expect_the_same_off_borders(
        "gelu", {all, all}, [&](const Pointers& a) { cuda::gelu(e, a[0], a[1], kAll, nullptr); });
    expect_the_same_off_borders("gelu_backward", {all, all, all, all}, [&](const Pointers& a) {
      cuda::gelu_backward(e, a[0], a[1], a[2], a[3], kAll, nullptr);
    });
    expect_the_same_off_borders("swiglu", {wide, all}, [&](const Pointers& a) {
      cuda::swiglu(e, a[0], a[1], kRows, kColumns, nullptr);
    });
    expect_the_same_off_borders("swiglu_backward", {wide, all, wide, all}, [&](const Pointers& a) {
      cuda::swiglu_backward(e, a[0], a[1], a[2], a[3], kRows, kColumns, nullptr);
    });
    expect_the_same_off_borders("relu_backward", {all, all, all}, [&](const Pointers& a) {
      cuda::relu_backward(e, a[0], a[1], a[2], kAll, nullptr);
    });
    expect_the_same_off_borders("add", {all, all, all}, [&](const Pointers& a) {
      cuda::add(e, a[0], a[1], a[2], kAll, nullptr);
    });
    expect_the_same_off_borders("add_repeated", {all, row}, [&](const Pointers& a) {
      cuda::add_repeated(e, a[0], a[1], kRows, 1, kColumns, nullptr);
    });
    expect_the_same_off_borders("multiply_add", {all, all, all, all}, [&](const Pointers& a) {
      cuda::multiply_add(e, a[0], a[1], a[2], a[3], kAll, nullptr);
    });
    const cuda::SampleMask mask{{.key = 7, .site = 1, .threshold = 1u << 30, .scale = 1.25f}, 0, 0};
    expect_the_same_off_borders("dropout_add", {all, all, all}, [&](const Pointers& a) {
      cuda::dropout_add(e, a[0], a[1], a[2], mask, kRows, kColumns, nullptr, nullptr);
    });
    const cuda::HeadRows heads{1, kRows, 1, kColumns, kAll, kColumns};
    expect_the_same_off_borders("rotate", {all, {Element::kFp32, kAll}}, [&](const Pointers& a) {
      cuda::rotate(e, a[0], heads, floats(a[1]), 1, nullptr);
    });
  }
}

// Misaligned strides of aligned arrays.
TEST_F(CudaBorders, RotationKeepsBitsWhenMisaligned) {
  for (const Element e : {Element::kFp32, Element::kBf16})
    for (const std::int64_t stride : {kColumns, kColumns + 1, kColumns + 8}) {
      std::mt19937 generator(5);
      SimtArray apart = SimtArray::random(e, kRows * stride, generator);
      SimtArray table = SimtArray::random(Element::kFp32, kAll, generator);
      std::vector<float> values = apart.floats(), together;
      for (std::int64_t row = 0; row < kRows; ++row)
        together.insert(together.end(), values.begin() + row * stride,
                        values.begin() + row * stride + kColumns);
      SimtArray right = SimtArray::of(e, together);
      cuda::rotate(e, apart.device(), {1, kRows, 1, kColumns, kRows * stride, stride},
                   table.device_floats(), 1, nullptr);
      cuda::rotate(e, right.device(), {1, kRows, 1, kColumns, kAll, kColumns},
                   table.device_floats(), 1, nullptr);
      apart.fetch(), right.fetch();
      for (std::int64_t i = 0; i < kAll; ++i)
        ASSERT_EQ(apart.bits(i / kColumns * stride + i % kColumns), right.bits(i)) << stride;
    }
}

TEST_F(CudaBorders, RowKernelsKeepBitsWhenMisaligned) {
  constexpr Element kFloat = Element::kFp32;
  const Array statistic{kFloat, kRows}, sums{kFloat, kColumns};
  const Array workspace{kFloat, cuda::column_workspace(kRows, kColumns)};
  for (const Element e : {Element::kFp32, Element::kBf16, Element::kFp16}) {
    const Array all{e, kAll}, row{e, kColumns};
    expect_the_same_off_borders("norm", {all, row, row, all, statistic, statistic},
                                [&](const Pointers& a) {
                                  cuda::norm(e, a[0], {a[1], a[2]}, a[3], floats(a[4]),
                                             floats(a[5]), kRows, kColumns, 1e-5f, nullptr);
                                });
    expect_the_same_off_borders("norm_again", {all, row, row, all, statistic, statistic},
                                [&](const Pointers& a) {
                                  cuda::norm_again(e, a[0], {a[1], a[2]}, floats(a[4]),
                                                   floats(a[5]), a[3], kRows, kColumns, nullptr);
                                });
    expect_the_same_off_borders("norm_backward", {all, all, row, all, statistic, statistic},
                                [&](const Pointers& a) {
                                  cuda::norm_backward(e, a[0], a[1], {a[2], nullptr}, floats(a[4]),
                                                      floats(a[5]), a[3], kRows, kColumns, nullptr);
                                });
    expect_the_same_off_borders("add_column_sums", {all, sums, workspace}, [&](const Pointers& a) {
      cuda::add_column_sums(e, a[0], floats(a[1]), kRows, kColumns, floats(a[2]), nullptr);
    });
    expect_the_same_off_borders(
        "norm_weight_gradient", {all, all, statistic, statistic, sums, sums, workspace},
        [&](const Pointers& a) {
          cuda::norm_weight_gradient(e, a[0], a[1], floats(a[2]), floats(a[3]), floats(a[4]),
                                     floats(a[5]), kRows, kColumns, floats(a[6]), nullptr);
        });
  }
  const Array all{kFloat, kAll};
  const auto norm = [](const Pointers& a, int first) {
    return kernels::BatchNormColumns{floats(a[first]), floats(a[first + 1]), floats(a[first + 2]),
                                     floats(a[first + 3]), 100};  // variances are any numbers here
  };
  expect_the_same_off_borders("batch_statistics", {all, sums, sums, workspace},
                              [&](const Pointers& a) {
                                cuda::batch_statistics(floats(a[0]), floats(a[1]), floats(a[2]),
                                                       kRows, kColumns, floats(a[3]), nullptr);
                              });
  expect_the_same_off_borders(
      "batch_norm", {all, sums, sums, sums, sums, all}, [&](const Pointers& a) {
        cuda::batch_norm(floats(a[0]), norm(a, 1), floats(a[5]), kRows, kColumns, nullptr);
      });
  expect_the_same_off_borders(
      "batch_norm_backward", {all, sums, sums, sums, sums, all, sums, sums, workspace},
      [&](const Pointers& a) {
        cuda::batch_norm_backward(floats(a[0]), floats(a[5]), norm(a, 1), floats(a[6]),
                                  floats(a[7]), kRows, kColumns, floats(a[8]), nullptr);
      });
}

TEST_F(CudaBorders, TableKernelsKeepBitsWhenMisaligned) {
  const std::vector<std::int64_t> tokens = {4, 0, 4};
  const std::vector<std::int32_t> rows = {0, 4, 4}, order = {1, 0, 2};
  SimtVector<std::int64_t> of(tokens);
  SimtVector<std::int32_t> sorted(rows), positions(order);
  for (const Element e : {Element::kFp32, Element::kBf16, Element::kFp16}) {
    const Array all{e, kAll}, table{e, 5 * kColumns}, gradients{Element::kFp32, 5 * kColumns};
    expect_the_same_off_borders("gather_rows", {table, all}, [&](const Pointers& a) {
      cuda::gather_rows(e, of.device(), a[0], a[1], kRows, kColumns, 0, 5, nullptr);
    });
    expect_the_same_off_borders("add_rows", {all, gradients}, [&](const Pointers& a) {
      cuda::add_rows(e, sorted.device(), positions.device(), a[0], floats(a[1]), kRows, kColumns, 5,
                     nullptr);
    });
    expect_the_same_off_borders(
        "add_position_gradients", {all, {Element::kFp32, kColumns}}, [&](const Pointers& a) {
          cuda::add_position_gradients(e, a[0], floats(a[1]), kRows, 1, kColumns, nullptr);
        });
  }
  const Array first{Element::kFp32, kAll}, rest{Element::kFp32, 2 * kAll};
  const Array dots{Element::kFp32, kRows * (kColumns + 3)};
  expect_the_same_off_borders("pairwise_dots", {first, rest, dots}, [&](const Pointers& a) {
    cuda::pairwise_dots({floats(a[0]), floats(a[1]), kRows, 3, kColumns}, floats(a[2]), nullptr);
  });
  expect_the_same_off_borders(
      "pairwise_dots_backward", {first, rest, dots, first, rest}, [&](const Pointers& a) {
        cuda::pairwise_dots_backward({floats(a[0]), floats(a[1]), kRows, 3, kColumns}, floats(a[2]),
                                     floats(a[3]), floats(a[4]), nullptr);
      });
}

// Rows long enough for several reads in flight; the last vector is partial.
TEST_F(CudaBorders, LossKernelsKeepBitsWhenMisaligned) {
  constexpr std::int64_t kClasses = 15000, kPadded = 15040;
  SimtVector<std::int64_t> targets(std::vector<std::int64_t>{kClasses - 4, 5});
  const kernels::CrossEntropy what{
      .at = {.columns = kPadded, .valid = kClasses - 3, .first = 0, .classes = kClasses - 3},
      .ignored = -100,
      .smoothing = 0.1f,
      .scale = 0.5f};
  for (const Element e : {Element::kFp32, Element::kBf16, Element::kFp16}) {
    const Array logits{e, 2 * kPadded}, row{Element::kFp32, 2};
    expect_the_same_off_borders(
        "softmax_sums", {logits, row, row, row, row}, [&](const Pointers& a) {
          cuda::softmax_sums(e, a[0], targets.device(), what, floats(a[1]),
                             {floats(a[2]), floats(a[3]), floats(a[4])}, 2, nullptr);
        });
    expect_the_same_off_borders("alone", {logits}, [&](const Pointers& a) {
      SimtVector<double> losses(2, 0.0);
      cuda::cross_entropy_alone(e, a[0], targets.device(), what, losses.device(), 2, true, nullptr,
                                nullptr);
    });
  }
}

}  // namespace
}  // namespace strata
