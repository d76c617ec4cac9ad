/// Writes answers and chunks of streams as OpenAI's clients read them.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "strata/openai/choice_text.h"

namespace strata {

enum class AnswerKind : std::uint8_t { kCompletion, kChat };

/// What all chunks of an answer repeat.
struct AnswerHead {
  AnswerKind kind = AnswerKind::kCompletion;
  std::string id;            ///< "cmpl-1f3c...", "chatcmpl-1f3c..."
  std::int64_t created = 0;  ///< seconds since 1970
  std::string model;
  bool scored = false;  ///< whether probabilities were requested
  /// Names the weights that compute now; called when a token is there, or the end. Null: no name.
  std::function<std::string()> weights = {};
};

struct Usage {
  std::int64_t prompt_tokens = 0;      ///< each prompt counts once, however many choices it has
  std::int64_t completion_tokens = 0;  ///< includes the tokens of stop strings and of best_of
  std::int64_t cached_tokens = 0;      ///< of the prompts
};

struct ChoiceAnswer {
  std::string text;
  std::vector<TokenPiece> pieces;  ///< with probabilities; empty if none were requested
  std::string finish_reason;       ///< "stop", "length"
};

nlohmann::ordered_json whole_answer(const AnswerHead& head,
                                    const std::vector<ChoiceAnswer>& choices, const Usage& usage);

/// Writes the chunks of one stream as JSON texts. They have `usage: null` where a usage chunk
/// follows.
class ChunkJson {
 public:
  ChunkJson(AnswerHead head, bool include_usage);

  bool has_roles() const { return head_.kind == AnswerKind::kChat; }  ///< a choice begins with one
  bool has_usage() const { return include_usage_; }

  std::string role(std::size_t choice) const;
  /// An empty finish_reason becomes null.
  std::string pieces(std::size_t choice, const std::string& text,
                     const std::vector<TokenPiece>& pieces, const std::string& finish_reason) const;
  std::string usage(const Usage& usage) const;  ///< without choices

 private:
  std::string chunk(const nlohmann::ordered_json& choice, const std::string& weights) const;
  const AnswerHead head_;
  const bool include_usage_;
  const std::string begin_;  // of each chunk, up to its choices
};

}  // namespace strata
