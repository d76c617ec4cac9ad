/// Rewrites text before it is cut into words, as the `normalizer` of a tokenizer.json says.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "strata/tokenizer/components.h"

namespace strata {

using TextStep = std::function<std::string(std::string_view)>;

/// In order; empty: text stays as it is.
std::vector<TextStep> read_normalizer(const JsonPart& normalizer);

}  // namespace strata
