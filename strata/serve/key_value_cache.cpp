#include "strata/serve/key_value_cache.h"

#include <ATen/ops/empty.h>

#include "strata/base/errors.h"

namespace strata {

KeyValueCache::KeyValueCache(const Sequential& model, const std::vector<int>& layers,
                             std::int64_t positions, Device device)
    : positions_(positions) {
  for (const int layer : layers) {
    LayerCache& kept = layers_[layer];
    for (const TensorSpec& spec : model.layer(layer).cache(/*samples=*/1, positions))
      kept.tensors.push_back(at::empty(spec.shape, device.options(spec.dtype)));
  }
}

void KeyValueCache::append(std::int64_t tokens) {
  length_ += tokens;
  STRATA_CHECK(length_ >= 0 && length_ <= positions_, "serve.cache");
  for (auto& [layer, kept] : layers_) kept.position = length_;
}

}  // namespace strata
