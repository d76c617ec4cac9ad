/// Continues prompts with the decoder of a checkpoint: tokens of the prompt, sampling, and what
/// ends a text.
///
/// Errors  UserError: an empty prompt without a beginning token, no tokenizer, a tokenizer that
///         does not fit the model.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "strata/serve/served_model.h"

namespace strata {

struct TextRequest {
  /// decoded together; a prompt may be empty if the tokenizer has a token that begins a text
  std::vector<std::string> prompts = {""};
  /// Whether each text begins with the tokens that the tokenizer puts there; false: the prompts
  /// have them.
  bool begins = true;
  std::int64_t tokens = 200;  ///< per text, at most; a token that begins or ends a text ends it
  double temperature = 0.8;   ///< 0: always the most likely token
  std::uint64_t seed = 1;
  bool in_this_process = false;  ///< ignores other processes that the environment names
  /// Called with the index of a prompt and each piece of its text, valid UTF-8, the first one
  /// empty; may be null.
  std::function<void(std::size_t, const std::string&)> on_text;
};

/// The text after each prompt, in the process that hosts rank 0; empty in others. Collective: every
/// process of a run calls it.
std::vector<std::string> generate_text(const ServedModel& served, const TextRequest& request);

}  // namespace strata
