// Compares the sums of the GPU kernel with the order of ordered_sum.cpp.
#include <gtest/gtest.h>

#include "strata/comm/cuda_kernels.h"
#include "strata/device/simt/simt_array_test.h"

namespace strata {
namespace {

using kernels::Element;
using simt::SimtArray;
using simt::SimtVector;

TEST(SumInOrder, AddsTermsInOrderAndRoundsOnce) {
  if (!simt::has_machine()) GTEST_SKIP() << "no CUDA device";
  std::mt19937 generator(5);
  simt::in_every_order([&] {
    for (const Element element : {Element::kFp32, Element::kBf16, Element::kFp16})
      for (const int count : {1, 2, 8, 9, 16, 19})
        for (const std::int64_t n : {0, 1, 8, 1003})
          for (const std::int64_t offset : {0, 1})
            for (const bool in_place : {false, true}) {
              std::vector<SimtArray> terms;
              for (int t = 0; t < count; ++t)
                terms.push_back(SimtArray::random(element, n, generator, 1, offset));
              std::vector<float> right = terms[0].floats();
              for (int t = 1; t < count; ++t)
                for (std::int64_t i = 0; i < n; ++i)
                  right[static_cast<std::size_t>(i)] += terms[static_cast<std::size_t>(t)][i];
              std::vector<const void*> pointers;
              for (SimtArray& term : terms) pointers.push_back(term.device());
              SimtArray fresh = SimtArray::poisoned(element, n, offset);
              SimtArray& out = in_place ? terms[count > 1 ? 1 : 0] : fresh;
              SimtArray workspace = SimtArray::poisoned(Element::kFp32, n);
              cuda::sum_in_order(element, pointers, out.device(), n, workspace.device_floats(),
                                 nullptr);
              out.fetch();
              ASSERT_TRUE(same_bits(out, SimtArray::of(element, right)))
                  << "element " << int(element) << ", terms " << count << ", n " << n;
            }
  });
}

TEST(SumInOrder, AddsDoubles) {
  if (!simt::has_machine()) GTEST_SKIP() << "no CUDA device";
  std::mt19937 generator(6);
  std::normal_distribution<double> normal;
  for (const int count : {1, 7, 8, 20}) {
    const std::size_t n = 300;
    std::vector<SimtVector<double>> terms;
    std::vector<double> right(n, 0);
    for (int t = 0; t < count; ++t) {
      std::vector<double> values(n);
      for (double& value : values) value = normal(generator);
      for (std::size_t i = 0; i < n; ++i) right[i] = t == 0 ? values[i] : right[i] + values[i];
      terms.emplace_back(values);
    }
    std::vector<const double*> pointers;
    for (SimtVector<double>& term : terms) pointers.push_back(term.device());
    SimtVector<double> sum(n, NAN);
    cuda::sum_in_order(pointers, sum.device(), static_cast<std::int64_t>(n), nullptr);
    sum.fetch();
    for (std::size_t i = 0; i < n; ++i) ASSERT_EQ(sum[i], right[i]);
  }
}

}  // namespace
}  // namespace strata
