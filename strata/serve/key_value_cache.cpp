#include "strata/serve/key_value_cache.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "strata/base/errors.h"

namespace strata {

std::int64_t page_bytes(const Sequential& model, const std::vector<int>& layers,
                        std::int64_t page_tokens) {
  std::int64_t bytes = 0;
  for (const int layer : layers)
    for (const TensorSpec& spec : model.layer(layer).cache(1, page_tokens)) bytes += spec.bytes();
  return bytes;
}

KeyValueCache::KeyValueCache(const Sequential& model, const std::vector<int>& layers,
                             const PageRoom& room, Device device, const LowerPagesOptions& lower)
    : room_(room) {
  std::vector<at::Tensor> tensors;
  for (const int layer : layers) {
    LayerCache& kept = layers_[layer];
    for (const TensorSpec& spec : model.layer(layer).cache(room.pages, room.page_tokens))
      tensors.push_back(
          kept.tensors.emplace_back(at::empty(spec.shape, device.options(spec.dtype))));
  }
  if (room.host_pages + room.disk_pages > 0)
    lower_ = std::make_unique<LowerPages>(room, std::move(tensors), device, lower);
}

void KeyValueCache::move(const PageMoves& moves) {
  STRATA_CHECK(moves.empty() || lower_, "serve.pages");
  for (const PageMove& move : moves) lower_->move(move);
}

const std::map<int, LayerCache>& KeyValueCache::begin(const Pass& pass) {
  constexpr const char* kPlace = "serve.pass";
  pass_.clear();
  std::int64_t packed = 0;
  for (const PassTokens& sequence : pass) {
    const std::int64_t count = std::ssize(sequence.tokens), end = sequence.position + count;
    STRATA_CHECK(count > 0 && sequence.position >= 0, kPlace);
    STRATA_CHECK(sequence.logits >= 0 && sequence.logits <= count, kPlace);
    STRATA_CHECK(end <= std::ssize(sequence.pages) * room_.page_tokens, kPlace);
    STRATA_CHECK(std::ranges::all_of(sequence.pages,
                                     [&](int page) { return page >= 0 && page < room_.pages; }),
                 kPlace);
    pass_.push_back({.pages = sequence.pages,
                     .position = sequence.position,
                     .first = packed,
                     .count = count,
                     .logits = sequence.logits});
    packed += count;
  }
  for (auto& [layer, kept] : layers_) kept.pass = pass_;
  return layers_;
}

}  // namespace strata
