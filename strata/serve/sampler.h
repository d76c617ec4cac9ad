/// Chooses the next token by its logits.
///
/// Draws are by counter, keyed by (seed, number of the token): the same on any mesh.
///
/// Shapes   logits [1, V] fp32.
/// Threads  const, any thread.
/// Source   Salmon et al. 2011 (Philox).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace strata {

class TokenSampler {
 public:
  /// `temperature` 0: the likeliest token, the first of equals; else a draw from
  /// softmax(logits / temperature).
  TokenSampler(double temperature, std::uint64_t seed) : temperature_(temperature), seed_(seed) {}

  /// `number`: how many tokens of the text were chosen before.
  std::int64_t choose(const at::Tensor& logits, std::uint32_t number) const;

 private:
  double temperature_;
  std::uint64_t seed_;
};

}  // namespace strata
