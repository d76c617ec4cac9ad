/// Continues texts with a decoder, one token per text and pass.
///
/// Source   Salmon et al. 2011 (Philox).
/// Threads  collective: every rank calls it with the same requests and its own decoder.
/// Cost     one pass of one token per text, until a text is as long as a page; from there on each new
///          token drops the first one, which moves all positions, and the whole window of that text
///          runs again.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "strata/comm/group.h"
#include "strata/serve/decoder.h"

namespace strata {

/// Chooses the next token from its logits. Random numbers are keyed by (seed, number of the token),
/// so they are the same on any mesh.
/// Shapes   logits [1, V] fp32.
/// Threads  const, any thread.
class TokenSampler {
 public:
  /// `temperature` 0: the most likely token, the first if several are equal; else a draw from
  /// softmax(logits / temperature).
  TokenSampler(double temperature, std::uint64_t seed) : temperature_(temperature), seed_(seed) {}

  /// `number`: how many tokens of the text were chosen before.
  std::int64_t choose(const at::Tensor& logits, std::uint32_t number) const;

 private:
  double temperature_;
  std::uint64_t seed_;
};

struct GenerateRequest {
  std::vector<std::int64_t> prompt;  ///< at least one token
  std::int64_t tokens = 0;           ///< maximum number of new tokens
  std::vector<std::int64_t> ends;    ///< tokens that end the text; they are not part of it
  TokenSampler sampler{0, 0};
};

/// Decodes all texts together; a text that ends leaves the batch. Page i of the decoder has the text
/// of requests[i]. Calls `on_token` on every rank with the index of the request and each new token.
void generate(Decoder& decoder, Group& world, std::span<const GenerateRequest> requests,
              const std::function<void(std::size_t, std::int64_t)>& on_token);

}  // namespace strata
