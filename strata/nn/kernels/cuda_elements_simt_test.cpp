// Compares the GPU's elementwise kernels with the host's: bits, or ulps if they use exponentials.
#include <gtest/gtest.h>

#include <functional>

#include "strata/base/philox.h"
#include "strata/device/simt/simt_array_test.h"
#include "strata/device/step_scalars.h"
#include "strata/nn/kernels/cuda_kernels.h"
#include "strata/nn/kernels/kernels.h"

namespace strata {
namespace {

using kernels::Element;
using simt::SimtArray;
using simt::SimtVector;

constexpr Element kElements[] = {Element::kFp32, Element::kBf16, Element::kFp16};
// Whole vectors and partial ones, fewer and more than a block.
constexpr std::int64_t kSizes[] = {0, 1, 3, 8, 15, 256, 2049, 5000};

// Calls body(element, n, offset): every size, aligned to 16 bytes and not.
void for_each_case(const std::function<void(Element, std::int64_t, std::int64_t)>& body) {
  simt::in_every_order([&] {
    for (const Element element : kElements)
      for (const std::int64_t n : kSizes)
        for (const std::int64_t offset : {0, 1}) {
          SCOPED_TRACE(testing::Message()
                       << "element " << int(element) << ", n " << n << ", offset " << offset);
          body(element, n, offset);
          if (testing::Test::HasFatalFailure()) return;
        }
  });
}

class CudaElements : public testing::Test {
 protected:
  void SetUp() override {
    if (!simt::has_machine()) GTEST_SKIP() << "no CUDA device";
  }
  SimtArray random(Element element, std::int64_t n, std::int64_t offset = 0, float scale = 2) {
    return SimtArray::random(element, n, generator_, scale, offset);
  }
  std::mt19937 generator_{7};
};

TEST_F(CudaElements, GeluEqualsHostWithinUlps) {
  for_each_case([&](Element element, std::int64_t n, std::int64_t offset) {
    SimtArray x = random(element, n, offset, 4), y = SimtArray::poisoned(element, n, offset);
    SimtArray expected = SimtArray::poisoned(element, n);
    cuda::gelu(element, x.device(), y.device(), n, nullptr);
    y.fetch();
    kernels::gelu(element, x.host(), expected.host(), n);
    ASSERT_TRUE(close(y, expected, element == Element::kFp32 ? 8 : 1, 1e-30));
  });
}

TEST_F(CudaElements, GeluBackwardEqualsHostWithinUlps) {
  for_each_case([&](Element element, std::int64_t n, std::int64_t offset) {
    SimtArray x = random(element, n, offset), dy = random(element, n, offset);
    SimtArray dx = SimtArray::poisoned(element, n, offset), y = SimtArray::poisoned(element, n);
    SimtArray right_dx = SimtArray::poisoned(element, n), right_y = SimtArray::poisoned(element, n);
    cuda::gelu_backward(element, x.device(), dy.device(), dx.device(), y.device(), n, nullptr);
    dx.fetch();
    y.fetch();
    kernels::gelu_backward(element, x.host(), dy.host(), right_dx.host(), right_y.host(), n);
    // The slope crosses zero, where the ulps of its terms count.
    const double near_zero = element == Element::kFp32 ? 1e-6 : 1e-30;
    ASSERT_TRUE(close(dx, right_dx, element == Element::kFp32 ? 8 : 1, near_zero));
    ASSERT_TRUE(close(y, right_y, element == Element::kFp32 ? 8 : 1, 1e-30));
    SimtArray again = SimtArray::of(element, dy.floats());  // in place, without y
    cuda::gelu_backward(element, x.device(), again.device(), again.device(), nullptr, n, nullptr);
    again.fetch();
    ASSERT_TRUE(same_bits(again, dx));
  });
}

TEST_F(CudaElements, ReluHasTheHostsBits) {
  for_each_case([&](Element element, std::int64_t n, std::int64_t offset) {
    std::vector<float> values = random(element, n).floats();
    for (std::size_t i = 0; i < values.size(); i += 5) values[i] = i % 2 ? 0.0f : -0.0f;
    SimtArray x = SimtArray::of(element, values, offset), dy = random(element, n, offset);
    SimtArray y = SimtArray::poisoned(element, n, offset),
              dx = SimtArray::poisoned(element, n, offset);
    SimtArray right_y = SimtArray::poisoned(element, n), right_dx = SimtArray::poisoned(element, n);
    cuda::relu(element, x.device(), y.device(), n, nullptr);
    cuda::relu_backward(element, x.device(), dy.device(), dx.device(), n, nullptr);
    y.fetch();
    dx.fetch();
    kernels::relu(element, x.host(), right_y.host(), n);
    kernels::relu_backward(element, x.host(), dy.host(), right_dx.host(), n);
    ASSERT_TRUE(same_bits(y, right_y));
    ASSERT_TRUE(same_bits(dx, right_dx));
  });
}

TEST_F(CudaElements, SwigluEqualsHostWithinUlps) {
  simt::in_every_order([&] {
    for (const Element element : kElements)
      for (const std::int64_t width : {1, 8, 11, 64, 1032})
        for (const std::int64_t rows : {0, 1, 5, 33}) {
          SimtArray x = random(element, rows * 2 * width), dy = random(element, rows * width);
          SimtArray y = SimtArray::poisoned(element, rows * width);
          SimtArray right_y = SimtArray::poisoned(element, rows * width);
          SimtArray dx = SimtArray::poisoned(element, x.size());
          SimtArray right_dx = SimtArray::poisoned(element, x.size());
          cuda::swiglu(element, x.device(), y.device(), rows, width, nullptr);
          y.fetch();
          kernels::swiglu(element, x.host(), right_y.host(), rows, width);
          const double ulps = element == Element::kFp32 ? 8 : 1;
          ASSERT_TRUE(close(y, right_y, ulps, 1e-30)) << rows << " x " << width;
          SimtArray again = SimtArray::of(element, dy.floats());  // y overwrites dy
          cuda::swiglu_backward(element, x.device(), again.device(), dx.device(), again.device(),
                                rows, width, nullptr);
          dx.fetch();
          again.fetch();
          kernels::swiglu_backward(element, x.host(), dy.host(), right_dx.host(), right_y.host(),
                                   rows, width);
          const double near_zero = element == Element::kFp32 ? 1e-6 : 1e-30;
          ASSERT_TRUE(close(dx, right_dx, ulps, near_zero)) << rows << " x " << width;
          ASSERT_TRUE(same_bits(again, y)) << rows << " x " << width;
        }
  });
}

TEST_F(CudaElements, SumsAndProductsHaveTheHostsBits) {
  for_each_case([&](Element element, std::int64_t n, std::int64_t offset) {
    SimtArray a = random(element, n, offset), b = random(element, n, offset),
              c = random(element, n);
    const auto expect = [&](const char* what, const auto& on_device, const auto& on_host) {
      SimtArray y = SimtArray::poisoned(element, n, offset),
                right = SimtArray::poisoned(element, n);
      on_device(y.device());
      on_host(right.host());
      y.fetch();
      ASSERT_TRUE(same_bits(y, right)) << what;
    };
    expect(
        "add", [&](void* y) { cuda::add(element, a.device(), b.device(), y, n, nullptr); },
        [&](void* y) { kernels::add(element, a.host(), b.host(), y, n); });
    expect(
        "multiply_add",
        [&](void* y) {
          cuda::multiply_add(element, a.device(), b.device(), c.device(), y, n, nullptr);
        },
        [&](void* y) { kernels::multiply_add(element, a.host(), b.host(), c.host(), y, n); });
    expect(
        "multiply",
        [&](void* y) {
          cuda::multiply_add(element, a.device(), b.device(), nullptr, y, n, nullptr);
        },
        [&](void* y) { kernels::multiply_add(element, a.host(), b.host(), nullptr, y, n); });
  });
}

TEST_F(CudaElements, ResultsAreRoundedAsOnTheHost) {
  for_each_case([&](Element element, std::int64_t n, std::int64_t offset) {
    // Denormals of fp16, overflow, ties.
    std::vector<float> values = random(Element::kFp32, n).floats(), factors(values.size(), 1.0f);
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (i % 4 == 1) factors[i] = 0x1p-15f;
      if (i % 4 == 2) factors[i] = 0x1.8p15f;
      if (i % 4 == 3) {
        values[i] = 1.0f + 0x1p-7f * static_cast<float>(i / 4 % 64);
        factors[i] = i % 8 == 3 ? 1.5f : 1.0f + 0x1p-4f;
      }
    }
    SimtArray x = SimtArray::of(element, values, offset), by = SimtArray::of(element, factors);
    SimtArray y = SimtArray::poisoned(element, n, offset), right = SimtArray::poisoned(element, n);
    cuda::multiply_add(element, x.device(), by.device(), nullptr, y.device(), n, nullptr);
    y.fetch();
    kernels::multiply_add(element, x.host(), by.host(), nullptr, right.host(), n);
    ASSERT_TRUE(same_bits(y, right));
  });
}

TEST_F(CudaElements, RepeatedRowsAreAdded) {
  simt::in_every_order([&] {
    for (const Element element : kElements)
      for (const std::int64_t columns : {1, 8, 13, 768})
        for (const std::int64_t length : {1, 3}) {
          const std::int64_t rows = 7;
          SimtArray x = random(element, rows * columns), table = random(element, length * columns);
          SimtArray right = SimtArray::of(element, x.floats());
          cuda::add_repeated(element, x.device(), table.device(), rows, length, columns, nullptr);
          x.fetch();
          const auto at = [&](SimtArray& array, std::int64_t i) {
            return static_cast<char*>(array.host()) + i * kernels::bytes_of(element);
          };
          for (std::int64_t row = 0; row < rows; ++row) {
            char* to = at(right, row * columns);
            kernels::add(element, to, at(table, row % length * columns), to, columns);
          }
          ASSERT_TRUE(same_bits(x, right)) << columns << ", length " << length;
        }
  });
}

TEST_F(CudaElements, DropoutHasTheHostsBits) {
  simt::in_every_order([&] {
    for (const Element element : kElements)
      for (const std::int64_t n : {1, 4, 7, 40, 1029})
        for (const bool from_scalars : {false, true}) {
          const std::int64_t samples = 3, before = 12;
          kernels::DropoutMask mask{0x1234567890ABCDEFull, 18, 0x60000000u, 1.6f};
          const cuda::SampleMask of{mask, 5, before};
          SimtVector<StepScalars> scalars(1, StepScalars{.step = 41, .first_sample = 1000});
          if (from_scalars) mask.key = mix_key(mask.key, 41);
          SimtArray x = random(element, samples * n), residual = random(element, samples * n);
          for (const bool adds : {false, true}) {
            SimtArray y = SimtArray::poisoned(element, samples * n);
            SimtArray right = SimtArray::poisoned(element, samples * n);
            cuda::dropout_add(element, adds ? residual.device() : nullptr, x.device(), y.device(),
                              of, samples, n, from_scalars ? scalars.device() : nullptr, nullptr);
            y.fetch();
            for (std::int64_t sample = 0; sample < samples; ++sample) {
              const std::int64_t at = sample * n * kernels::bytes_of(element);
              const auto from = [&](SimtArray& array) {
                return static_cast<char*>(array.host()) + at;
              };
              kernels::dropout_add(element, adds ? from(residual) : nullptr, from(x), from(right),
                                   mask, static_cast<std::uint32_t>(of.first_sample + sample),
                                   before, n);
            }
            ASSERT_TRUE(same_bits(y, right)) << "element " << int(element) << ", n " << n;
          }
        }
  });
}

}  // namespace
}  // namespace strata
