/// Continues a prompt with the model of a checkpoint, on the mesh that its recipe names.
///
/// Errors  UserError: nothing to continue, no tokenizer, a tokenizer that isn't the model's.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "strata/train/recipe.h"

namespace strata {

struct TextRequest {
  std::string checkpoint;  ///< a checkpoint, a folder that holds several, or a Hugging Face folder
  std::string prompt;      ///< may be empty if the tokenizer has a token that begins a text
  std::int64_t tokens = 200;  ///< at most; a token that begins or ends a text ends it
  double temperature = 0.8;   ///< 0: the likeliest token every time
  std::uint64_t seed = 1;
  bool in_this_process = false;                     ///< whatever the environment says of others
  std::function<void(const std::string&)> on_text;  ///< each piece, valid UTF-8, the first
                                                    ///< one empty; may be none
};

/// The recipe that trained the checkpoint at `path`, or for a Hugging Face folder its model and
/// tokenizer, with `overrides`. A tokenizer.json in the folder is taken before the recipe's.
Recipe recipe_of(const std::string& path, const std::vector<std::string>& overrides);

/// The text behind the prompt, in the process that hosts rank 0; empty in others. Of the recipe's
/// mesh the stages and the tensor-parallel slices of one replica are used. Collective: every
/// process of a run calls it.
std::string generate_text(const Recipe& recipe, const TextRequest& request);

}  // namespace strata
