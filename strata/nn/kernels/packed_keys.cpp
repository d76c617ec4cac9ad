#include "strata/nn/kernels/packed_keys.h"

#include <algorithm>

#include "strata/nn/kernels/kernels.h"

namespace strata::kernels {
namespace {

// Keys and values, each in both orders.
constexpr std::int64_t kForms = 4;
// 16 MiB: more than the last blocks of usual windows.
constexpr std::int64_t kMostElements = 1 << 22;
constexpr std::int64_t kLeastBlocks = 4;

}  // namespace

PackedKeys::PackedKeys(std::int64_t block, std::int64_t width)
    : block_(block), width_(width), padded_(tile_width(width)), numel_(kForms * block_ * padded_) {
  reserve(kLeastBlocks);
}

void PackedKeys::reserve(std::size_t blocks) {
  const auto most = static_cast<std::size_t>(std::max(kLeastBlocks, kMostElements / numel_));
  const std::size_t slots = std::min(blocks + blocks / 4, most);
  if (blocks <= kept_.size() || slots == kept_.size()) return;
  memory_ = hwy::AllocateAligned<float>(slots * static_cast<std::size_t>(numel_));
  kept_.assign(slots, -1);
  next_ = 0;
}

void PackedKeys::reset(const HeadKeys& keys, KeyUse use) {
  keys_ = keys;
  use_ = use;
  next_ = 0;
  std::fill(kept_.begin(), kept_.end(), -1);
}

PackedBlock PackedKeys::find(std::int32_t block) {
  auto slot = std::find(kept_.begin(), kept_.end(), block);
  const bool found = slot != kept_.end();
  if (!found) {
    slot = kept_.begin() + static_cast<std::ptrdiff_t>(next_);
    next_ = (next_ + 1) % kept_.size();
    *slot = block;
  }
  const std::int64_t part = block_ * padded_;
  float* at = memory_.get() + (slot - kept_.begin()) * numel_;
  if (!found) pack(block, at);
  return {.keys = at,
          .values = at + part,
          .keys_across = at + 2 * part,
          .values_across = at + 3 * part};
}

std::int64_t PackedKeys::count(std::int32_t block) const {
  return std::min(block_, keys_.tokens - block * block_);
}

void PackedKeys::pack(std::int32_t block, float* to) const {
  const std::int64_t part = block_ * padded_, rows = count(block);
  copy_rows(keys_.keys, block, to);
  copy_across(to, rows, to + 2 * part);
  copy_rows(keys_.values, block, to + part);
  if (use_ == KeyUse::kGradient) copy_across(to + part, rows, to + 3 * part);
}

void PackedKeys::copy_rows(const RowsInPages& from, std::int32_t block, float* to) const {
  const std::int64_t first = block * block_, rows = count(block);
  for (std::int64_t token = first; token < first + rows; ++token, to += padded_) {
    const std::int64_t offset = keys_.pages[token / keys_.page_tokens] * from.page_stride +
                                token % keys_.page_tokens * from.token_stride;
    widen(keys_.element, static_cast<const std::byte*>(from.data) + offset, to, width_);
    std::fill(to + width_, to + padded_, 0.0f);
  }
  std::fill_n(to, (block_ - rows) * padded_, 0.0f);
}

// [block, W] -> [width, block]
void PackedKeys::copy_across(const float* from, std::int64_t rows, float* to) const {
  for (std::int64_t i = 0; i < width_; ++i, to += block_) {
    for (std::int64_t row = 0; row < rows; ++row) to[row] = from[row * padded_ + i];
    std::fill(to + rows, to + block_, 0.0f);
  }
}

}  // namespace strata::kernels
