/// Writes text with a trained model, one token after another.
///
/// Cost  every token runs the whole context again: no cache of keys and values.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "strata/train/recipe.h"

namespace strata {

struct GenerateRequest {
  std::string checkpoint;  ///< a checkpoint or the folder that holds several
  std::string prompt;
  std::int64_t tokens = 200;
  double temperature = 0.8;  ///< 0: the likeliest token every time
  std::uint64_t seed = 1;
  std::function<void(const std::string&)> on_text;  ///< each piece as it is made; may be empty
};

/// The text behind the prompt. `recipe` is the one that trained the checkpoint.
std::string generate(const Recipe& recipe, const GenerateRequest& request);

}  // namespace strata
