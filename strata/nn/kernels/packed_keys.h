/// Keeps the blocks of keys and values that a thread used last, in fp32 and in both orders that the
/// products of attention_tiles.h read. Blocks of queries that follow one another share most of
/// their blocks of keys.
///
/// Units    strides in bytes; a sample of a tensor is one page.
/// Threads  one thread uses an object.
#pragma once

#include <hwy/aligned_allocator.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "strata/base/element.h"
#include "strata/nn/kernels/attention_tiles.h"

namespace strata::kernels {

/// The keys or the values of one head.
struct RowsInPages {
  const void* data;  ///< of the first token of page 0
  std::int64_t token_stride, page_stride;
};

/// The keys and values of a text that one head reads.
struct HeadKeys {
  Element element;
  RowsInPages keys, values;
  std::span<const std::int32_t> pages;
  std::int64_t page_tokens;
  std::int64_t tokens;  ///< of the text
};

enum class KeyUse : std::uint8_t { kForward, kGradient };

class PackedKeys {
 public:
  /// `block` and `width` as in AttentionTile.
  PackedKeys(std::int64_t block, std::int64_t width);

  /// Forgets all blocks. `keys` must outlive their use.
  void reset(const HeadKeys& keys, KeyUse use);

  /// Makes room for so many blocks, if that many may be kept: a list of blocks that is longer than
  /// the room would be packed anew for every block of queries.
  void reserve(std::size_t blocks);

  /// Valid until the next call. In a forward, `values_across` holds no numbers.
  PackedBlock find(std::int32_t block);

  /// Keys of the block in the text.
  std::int64_t count(std::int32_t block) const;

 private:
  void pack(std::int32_t block, float* to) const;
  void copy_rows(const RowsInPages& from, std::int32_t block, float* to) const;
  void copy_across(const float* from, std::int64_t rows, float* to) const;

  std::int64_t block_, width_, padded_;
  HeadKeys keys_ = {};
  KeyUse use_ = KeyUse::kForward;
  std::int64_t numel_;  // of a slot
  hwy::AlignedFreeUniquePtr<float[]> memory_;
  std::vector<std::int32_t> kept_;  // the block of each slot; -1: none
  std::size_t next_ = 0;            // the slot that is overwritten next
};

}  // namespace strata::kernels
