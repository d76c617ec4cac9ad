// Compares the kernels with loops over elements (rounded_floats_test.h), and whole ranges with
// halves.
#include "strata/optim/one_bit_kernels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "strata/optim/rounded_floats_test.h"

namespace strata::kernels {
namespace {

const OneBitStep kStep{.momentum_kept = 0.9f,
                       .gradient_share = 0.2f,
                       .most = 0.7f,
                       .root_scale = 1.1f,
                       .epsilon = 1e-6f,
                       .size = 0.03f};
constexpr float kKept = 0.99f;

struct OneBitArrays {
  std::vector<float> gradients, variances, momenta, sent, weights;

  // What kernels write.
  std::vector<std::uint32_t> bits() const {
    std::vector<std::uint32_t> all;
    for (const auto* values : {&momenta, &sent, &weights})
      for (const float value : *values) all.push_back(std::bit_cast<std::uint32_t>(value));
    return all;
  }
};

OneBitArrays random_one_bit_arrays(std::int64_t n, bool wild) {
  return {.gradients = random_floats(n, 1e-3f, wild, 1),
          .variances = random_squares(n, 1e-6f, wild, 2),
          .momenta = random_floats(n, 1e-3f, wild, 3),
          .sent = random_floats(n, 0.1f, wild, 4),
          .weights = random_floats(n, 0.02f, wild, 5)};
}

// Adds momenta and moves weights by what is sent.
void update_part(OneBitArrays& x, std::int64_t from, std::int64_t to) {
  add_momenta(kStep, x.gradients.data() + from, x.momenta.data() + from, x.variances.data() + from,
              x.sent.data() + from, to - from);
  move_weights(kStep, x.sent.data() + from, x.variances.data() + from, x.momenta.data() + from,
               x.weights.data() + from, kKept, to - from);
}

OneBitArrays updated(OneBitArrays x) {
  for (std::size_t i = 0; i < x.weights.size(); ++i) {
    const float by = plus(times(root(x.variances[i]), kStep.root_scale), kStep.epsilon);
    float share = over(times(kStep.gradient_share, x.gradients[i]), by);
    if (!std::isnan(share)) share = std::clamp(share, -kStep.most, kStep.most);
    const float kept = over(times(kStep.momentum_kept, x.momenta[i]), by);
    x.sent[i] = plus(x.sent[i], plus(kept, share));
    x.momenta[i] = times(x.sent[i], by);
    x.weights[i] = minus(times(x.weights[i], kKept), times(kStep.size, x.sent[i]));
    for (auto* values : {&x.sent, &x.momenta, &x.weights})
      (*values)[i] = std::bit_cast<float>(bits_of((*values)[i]));
  }
  return x;
}

TEST(OneBitKernels, UpdatesHaveBitsOfElements) {
  for (const bool wild : {false, true})
    for (const std::int64_t n : kTestedLengths) {
      const OneBitArrays before = random_one_bit_arrays(n, wild), expected = updated(before);
      expect_bits_of_elements(before, expected, n, update_part);
    }
}

}  // namespace
}  // namespace strata::kernels
