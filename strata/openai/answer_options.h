/// Reads the fields that completions and chat completions share: how many answers, how long, how
/// their tokens are chosen, and how they are sent.
///
/// Unknown fields are ignored, as OpenAI's clients send new ones each year. A field that would
/// change the answer and that Strata does not support is refused.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "strata/batching/token_service.h"
#include "strata/grammar/token_grammar.h"
#include "strata/openai/request_fields.h"

namespace strata {

struct AnswerOptions {
  std::optional<std::int64_t> max_tokens = {};  ///< of each choice
  std::int64_t min_tokens = 0;
  bool ignore_ends = false;
  std::vector<std::string> stops = {};
  std::vector<std::int64_t> stop_tokens = {};
  Sampling sampling = {};             ///< choice i draws with seed + i
  std::optional<int> likeliest = {};  ///< how many alternatives; none: no probabilities
  int choices = 1;
  int candidates = 1;  ///< the most likely `choices` of them are sent
  bool stream = false;
  bool include_usage = false;                  ///< of a stream
  std::shared_ptr<TokenGrammar> grammar = {};  ///< that all answers match; null: none
};

/// `vocabulary`: of the model. Without a seed, the seed is random. Does not read the length and
/// the fields of probabilities, which differ by route, nor those of grammars (output_grammar.h).
AnswerOptions read_answer_options(const RequestFields& fields, std::int64_t vocabulary);

/// Refuses a field whose value is neither missing, null, false, empty nor `neutral`.
void refuse_if_set(const RequestFields& fields, const std::string& field, const std::string& reason,
                   const nlohmann::json& neutral = nullptr);

inline constexpr std::int64_t kMaxChoices = 128;  ///< and candidates
inline constexpr std::int64_t kMaxLikeliest = 20;

}  // namespace strata
