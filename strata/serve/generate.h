/// Continues texts with a decoder, one token of each after another.
///
/// Source   Salmon et al. 2011 (Philox).
/// Threads  collective: every rank calls it with the same requests and its own decoder.
/// Cost     one pass of one token per text, until a text is as long as the decoder has positions;
///          from there on each new token drops the first one, which moves all positions, and the
///          whole window of that text runs again.
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

/// Chooses the next token by its logits. Draws are by counter, keyed by (seed, number of the token):
/// the same on any mesh.
/// Shapes   logits [1, V] fp32.
/// Threads  const, any thread.
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

struct GenerateRequest {
  std::vector<std::int64_t> prompt;  ///< at least one token
  std::int64_t tokens = 0;           ///< at most
  std::vector<std::int64_t> ends;    ///< tokens that end the text; they are not part of it
  TokenSampler sampler{0, 0};
};

/// Decodes all texts together; those that ended drop out. Sequence i of the decoder is requests[i].
/// Calls `on_token` on every rank with the index of the request and each token as it is known.
void generate(Decoder& decoder, Group& world, std::span<const GenerateRequest> requests,
              const std::function<void(std::size_t, std::int64_t)>& on_token);

}  // namespace strata
