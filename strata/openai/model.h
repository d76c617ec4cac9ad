/// Ties what a front end needs of a model: its name, tokenizer, chat template and the service that
/// continues its sequences.
///
/// Threads  the parts are const or may be called from any thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "strata/batching/token_service.h"
#include "strata/jinja/chat_template.h"
#include "strata/openai/metrics.h"
#include "strata/openai/model_grammars.h"
#include "strata/tokenizer/tokenizer.h"

namespace strata {

struct OpenAiModel {
  std::string name;
  std::shared_ptr<const Tokenizer> tokenizer;
  std::shared_ptr<TokenService> service;
  std::optional<ChatTemplate> chat = {};  ///< none: the model answers no conversations
  SpecialTokens special = {};
  std::map<std::int64_t, std::string> token_names = {};  ///< of `special`
  std::vector<std::int64_t> ends = {};                   ///< tokens that end a text
  std::int64_t created = 0;                              ///< seconds since 1970
  /// Counts the requests of all front ends; copies of the model share it.
  std::shared_ptr<ModelMetrics> metrics = std::make_shared<ModelMetrics>();
  std::shared_ptr<ModelGrammars> grammars = std::make_shared<ModelGrammars>();
};

/// `tokenizer`: "bytes", a folder or a tokenizer.json; chat template and special tokens come from
/// its folder. A text ends with the tokenizer's end-of-sequence (EOS) token or the one that begins
/// a text.
/// Errors: UserError of make_tokenizer() and ChatTemplate::find().
OpenAiModel open_model(std::string name, const std::string& tokenizer,
                       std::shared_ptr<TokenService> service);

std::int64_t seconds_since_1970();  ///< by the system's clock

/// Tokens of a text; with `begins`, after those that the tokenizer puts in front of every text.
std::vector<std::int64_t> prompt_tokens(const OpenAiModel& model, std::string_view text,
                                        bool begins);

/// The text of tokens.
std::string decoded_text(const OpenAiModel& model, std::span<const std::int64_t> tokens);

}  // namespace strata
