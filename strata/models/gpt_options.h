/// Sizes a GPT.
#pragma once

#include <cstdint>
#include <string>

#include "strata/base/options.h"

namespace strata {

struct GptOptions {
  std::string kind = "gpt";
  std::int64_t layers = 6;
  std::int64_t width = 384;
  std::int64_t heads = 6;
  std::int64_t vocab = 256;
  std::int64_t context = 256;
  double dropout = 0;
  bool tie = true;    ///< the head uses the token embedding
  bool skip = false;  ///< the embedding's output is added again before the head
};

void describe(OptionSet& set, const std::string& prefix, GptOptions& options);

}  // namespace strata
