/// Writes answers and chunks of streams as OpenAI's clients read them.
#pragma once

#include <cstdint>
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

/// Chunks have `usage: null` where a usage chunk follows.
class ChunkJson {
 public:
  ChunkJson(AnswerHead head, bool include_usage)
      : head_(std::move(head)), include_usage_(include_usage) {}

  nlohmann::ordered_json role(std::size_t choice) const;  ///< the first chunk of a chat's choice
  /// An empty finish_reason becomes null.
  nlohmann::ordered_json pieces(std::size_t choice, const std::string& text,
                                const std::vector<TokenPiece>& pieces,
                                const std::string& finish_reason) const;
  nlohmann::ordered_json usage(const Usage& usage) const;  ///< without choices

 private:
  nlohmann::ordered_json chunk(nlohmann::ordered_json choices) const;
  AnswerHead head_;
  bool include_usage_;
};

}  // namespace strata
