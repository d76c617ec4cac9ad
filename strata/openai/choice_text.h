/// Turns the tokens of one choice into pieces of text: a piece a token, with its probabilities.
///
/// A token's piece is complete UTF-8. Pieces that may belong to a stop string are held back; no
/// part of a stop string is ever shown, nor a token whose text begins in it.
///
/// Threads  one.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "strata/batching/stop_strings.h"
#include "strata/openai/answer_options.h"
#include "strata/openai/model.h"
#include "strata/tokenizer/text_stream.h"

namespace strata {

struct NamedToken {
  std::string
      name;  ///< its text; "bytes:\xe2\x82" if that is no UTF-8, "token_id:5" if it has none
  std::string bytes;                           ///< what it adds to the text
  std::optional<double> log_probability = {};  ///< none: the first token of a prompt
};

struct TokenPiece {
  std::string text;         ///< the characters that the token completes
  std::int64_t id = -1;     ///< of the token
  std::int64_t offset = 0;  ///< characters of the choice's text before it
  NamedToken token = {};    ///< only if probabilities were requested; also the alternatives
  std::vector<NamedToken> likeliest = {};
};

class ChoiceText {
 public:
  /// With `echo` the text begins with that of the prompt. Both arguments must outlive this object.
  ChoiceText(const OpenAiModel& model, std::span<const std::int64_t> prompt,
             const AnswerOptions& options, bool echo);

  /// The prompt's own pieces, once, before push(). `scores`: of all its tokens but the first; empty
  /// if probabilities were not requested.
  std::vector<TokenPiece> prompt(const std::vector<ScoredToken>& scores);

  /// The pieces that are certain now.
  std::vector<TokenPiece> push(const ScoredToken& token);

  /// Adds a token that ends the text; it has no text of its own.
  std::vector<TokenPiece> push_end(const ScoredToken& token);

  /// The pieces that were held back; the last one has the end of the text. Text that no piece has
  /// is appended to `rest`.
  std::vector<TokenPiece> finish(std::string& rest);

  bool stopped() const { return stops_.met().has_value(); }  ///< a stop string was met

 private:
  NamedToken named(std::int64_t token, std::optional<double> log_probability) const;
  TokenPiece piece_of(const ScoredToken& token) const;
  std::vector<TokenPiece> certain();

  struct Held {
    TokenPiece piece;
    std::size_t begin = 0;  // bytes of the answer before it
  };
  const OpenAiModel& model_;
  std::span<const std::int64_t> prompt_;
  bool scored_;
  TextStream stream_;
  StopStrings stops_;
  std::deque<Held> held_;
  std::size_t bytes_ = 0;          // of the answer so far
  std::size_t certain_bytes_ = 0;  // that no stop string can take back
  std::int64_t characters_ = 0;    // of the choice's text
};

}  // namespace strata
