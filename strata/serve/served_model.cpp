#include "strata/serve/served_model.h"

#include <vector>

#include "strata/base/error_source.h"
#include "strata/checkpoint/loader.h"

namespace strata {

std::shared_ptr<const Tokenizer> tokenizer_of(const ServedModel& served) {
  constexpr ErrorSource kErrors{
      "serve.tokenizer", "pass --set data.tokenizer=PATH, the tokenizer of the training text"};
  if (tokenizer_kind(served.tokenizer) == TokenizerKind::kNone)
    throw kErrors.user("data.tokenizer", "tokens have no text", "a tokenizer", "none");
  auto tokenizer = make_tokenizer(served.tokenizer);
  if (tokenizer->vocabulary() > served.model.vocab) {
    throw kErrors.user("data.tokenizer", "the tokenizer has more tokens than the model",
                       "at most " + std::to_string(served.model.vocab),
                       std::to_string(tokenizer->vocabulary()));
  }
  return tokenizer;
}

void load(Decoder& decoder, const ServedModel& served) {
  // Pins the weights until the end.
  std::vector<NamedState> weights = decoder.weights();
  load_weights(served.checkpoint, served.model, weights);
}

}  // namespace strata
