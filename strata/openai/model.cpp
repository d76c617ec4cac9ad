#include "strata/openai/model.h"

#include <chrono>
#include <utility>

namespace strata {

OpenAiModel open_model(std::string name, const std::string& tokenizer,
                       std::shared_ptr<TokenService> service) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  OpenAiModel model{.name = std::move(name),
                    .tokenizer = make_tokenizer(tokenizer),
                    .service = std::move(service),
                    .created = std::chrono::duration_cast<std::chrono::seconds>(now).count()};
  if (tokenizer_kind(tokenizer) == TokenizerKind::kFile) {
    model.chat = ChatTemplate::find(tokenizer);
    model.special = special_tokens(tokenizer);
    for (const auto& [role, name] : model.special)
      if (const auto tokens = model.tokenizer->encode(name); tokens.size() == 1)
        model.token_names[tokens.front()] = name;
  }
  if (const auto eos = model.tokenizer->eos()) model.ends.push_back(*eos);
  if (const auto begin = model.tokenizer->bos(); begin && begin != model.tokenizer->eos())
    model.ends.push_back(*begin);
  return model;
}

std::vector<std::int64_t> prompt_tokens(const OpenAiModel& model, std::string_view text,
                                        bool begins) {
  std::vector<std::int64_t> tokens;
  if (begins) tokens = model.tokenizer->prefix();
  const std::vector<std::int64_t> own = model.tokenizer->encode(text);
  tokens.insert(tokens.end(), own.begin(), own.end());
  return tokens;
}

}  // namespace strata
