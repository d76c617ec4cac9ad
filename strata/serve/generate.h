/// Continues texts with a decoder, one token per text and pass.
///
/// Threads  collective: every rank calls it with the same requests and its own decoder.
/// Cost     one pass of one token per text, until a text is as long as a page; from there on each
///          new token drops the first one, which moves all positions, and the whole window of that
///          text runs again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "strata/batching/token_service.h"
#include "strata/comm/group.h"
#include "strata/serve/decoder.h"

namespace strata {

struct GenerateRequest {
  std::vector<std::int64_t> prompt;  ///< at least one token
  std::int64_t tokens = 0;           ///< maximum number of new tokens
  std::vector<std::int64_t> ends;    ///< tokens that end the text; they are not part of it
  Sampling sampling{.temperature = 0};
};

/// Decodes all texts together; a text that ends leaves the batch. Page i of the decoder has the
/// text of requests[i]. Calls `on_token` on every rank with the index of the request and each new
/// token.
void generate(Decoder& decoder, Group& world, std::span<const GenerateRequest> requests,
              const std::function<void(std::size_t, std::int64_t)>& on_token);

}  // namespace strata
