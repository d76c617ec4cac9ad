#include "strata/serve/served_model.h"

#include <filesystem>
#include <vector>

#include "strata/base/error_source.h"
#include "strata/checkpoint/loader.h"
#include "strata/checkpoint/reader.h"

namespace strata {

WeightTiers weight_tiers(const ServedModel& served, const std::string& disk) {
  const auto rate = static_cast<double>(served.memory.link_bandwidth.count);
  return {.link = {.bytes_per_second = rate}, .host_bytes = served.memory.host.count, .disk = disk};
}

Sequential network_of(const ServedModel& served) {
  return make_served_model(served.model, served.weights,
                           {.ranks = served.ranks.mesh[Axis::kTensor]}, served.precision);
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

void load_checkpoint(Decoder& decoder, const DecoderOptions& model, const std::string& checkpoint) {
  const StateLoader loader(checkpoint, model, SameModel::kWeights);
  decoder.fill([&](const std::vector<NamedState>& weights) { loader.read_weights(weights); });
}

void check_checkpoint(const std::string& checkpoint, const DecoderOptions& model) {
  const StateLoader same(checkpoint, model, SameModel::kWeights);
  CheckpointReader::open(checkpoint).verify_all();
}

std::string weights_name(const std::string& checkpoint, WeightType type) {
  if (checkpoint.empty()) return {};
  const std::filesystem::path folder = CheckpointReader::open(checkpoint).folder();
  const std::string name = std::filesystem::weakly_canonical(folder).filename().string();
  return type == WeightType::kPrecision ? name : name + ' ' + name_of(type);
}

}  // namespace strata
