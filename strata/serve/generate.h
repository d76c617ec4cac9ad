/// Continues a text with a decoder, one token after another.
///
/// Threads  collective: every rank calls it with the same request and its own decoder.
/// Cost     a pass of one token each, until the text is as long as the decoder has positions; from
///          there on a token that is added drops the first one, which moves all positions, and the
///          whole window runs again.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "strata/comm/group.h"
#include "strata/serve/decoder.h"
#include "strata/serve/sampler.h"

namespace strata {

struct GenerateRequest {
  std::vector<std::int64_t> prompt;  ///< at least one token
  std::int64_t tokens = 0;           ///< at most
  std::vector<std::int64_t> ends;    ///< tokens that end the text; they are not part of it
  TokenSampler sampler{0, 0};
};

/// Calls `on_token` on every rank for each token as it is known.
void generate(Decoder& decoder, Group& world, const GenerateRequest& request,
              const std::function<void(std::int64_t)>& on_token);

}  // namespace strata
