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
  std::string
      checkpoint;      ///< a checkpoint, the folder that holds several, or a Hugging Face folder
  std::string prompt;  ///< may be empty if the tokenizer has a token that begins a text
  std::int64_t tokens = 200;  ///< at most; a token that begins or ends a text ends it
  double temperature = 0.8;   ///< 0: the likeliest token every time
  std::uint64_t seed = 1;
  std::function<void(const std::string&)> on_text;  ///< each piece as it is made; may be empty
};

/// The recipe that trained the checkpoint at `path`, or for a Hugging Face folder its model and
/// tokenizer, with `overrides`. A tokenizer.json in the folder is taken before the recipe's.
Recipe recipe_of(const std::string& path, const std::vector<std::string>& overrides);

/// The text behind the prompt. `recipe` is that of the checkpoint.
std::string generate(const Recipe& recipe, const GenerateRequest& request);

}  // namespace strata
