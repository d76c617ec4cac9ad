#include "strata/openai/model.h"

#include <chrono>
#include <utility>

#include "strata/tokenizer/text_stream.h"

namespace strata {

std::int64_t seconds_since_1970() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::seconds>(now).count();
}

OpenAiModel open_model(std::string name, const std::string& tokenizer,
                       std::shared_ptr<TokenService> service) {
  OpenAiModel model{.name = std::move(name),
                    .tokenizer = make_tokenizer(tokenizer),
                    .service = std::move(service),
                    .created = seconds_since_1970()};
  if (tokenizer_kind(tokenizer) == TokenizerKind::kFile) {
    model.chat = ChatTemplate::find(tokenizer);
    model.special = special_tokens(tokenizer);
    for (const auto& [role, name] : model.special)
      if (const auto tokens = model.tokenizer->encode(name); tokens.size() == 1)
        model.token_names[tokens.front()] = name;
  }
  model.ends = model.tokenizer->ends();
  return model;
}

std::vector<std::int64_t> prompt_tokens(const OpenAiModel& model, std::string_view text,
                                        bool begins) {
  return begins ? model.tokenizer->encode_with_prefix(text) : model.tokenizer->encode(text);
}

std::string decoded_text(const OpenAiModel& model, std::span<const std::int64_t> tokens) {
  TextStream stream(*model.tokenizer, {});
  std::string text;
  for (const std::int64_t token : tokens) text += stream.push(token);
  return text + stream.finish();
}

}  // namespace strata
