#include "strata/serve/key_value_cache.h"

#include <ATen/ops/empty.h>

#include "strata/base/errors.h"

namespace strata {

KeyValueCache::KeyValueCache(const Sequential& model, const std::vector<int>& layers, int sequences,
                             std::int64_t positions, Device device)
    : positions_(positions), lengths_(sequences, 0) {
  for (const int layer : layers) {
    LayerCache& kept = layers_[layer];
    for (const TensorSpec& spec : model.layer(layer).cache(sequences, positions))
      kept.tensors.push_back(at::empty(spec.shape, device.options(spec.dtype)));
  }
}

const std::map<int, LayerCache>& KeyValueCache::append(std::span<const NewTokens> batch) {
  std::vector<SequenceTokens> pass;
  std::int64_t packed = 0;
  for (const auto& [sequence, tokens] : batch) {
    std::int64_t& length = lengths_.at(sequence);
    const auto count = static_cast<std::int64_t>(tokens.size());
    pass.push_back({.sequence = sequence, .position = length, .first = packed, .count = count});
    length += count;
    packed += count;
    STRATA_CHECK(count > 0 && length <= positions_, "serve.append");
  }
  for (auto& [layer, kept] : layers_) kept.pass = pass;
  return layers_;
}

}  // namespace strata
