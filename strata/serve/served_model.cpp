#include "strata/serve/served_model.h"

#include <vector>

#include "strata/base/error_source.h"
#include "strata/checkpoint/loader.h"

namespace strata {

WeightTiers weight_tiers(const ServedModel& served, const std::string& disk) {
  const auto rate = static_cast<double>(served.memory.link_bandwidth.count);
  return {.link = {.bytes_per_second = rate}, .host_bytes = served.memory.host.count, .disk = disk};
}

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
  const StateLoader checkpoint(served.checkpoint, served.model, SameModel::kWeights);
  decoder.fill([&](const std::vector<NamedState>& weights) { checkpoint.read_weights(weights); });
}

}  // namespace strata
