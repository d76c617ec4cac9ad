/// Exports a flat tensor to a rank, which reads it from front to back: whole where the rank reads it
/// in place, else in chunks, so that the next is on its way while one is used.
///
/// The reader need not know which: what arrives says how long it is.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

#include "strata/comm/group.h"
#include "strata/comm/shared_buffer.h"

namespace strata {

constexpr std::int64_t kChunkElements = 1 << 18;

/// Exports what is ready, elements [0, ready), apart from [0, exported), which was already; both are
/// multiples of kChunkElements or all.
void export_chunks(Group& group, int peer, const MessageTag& tag, const at::Tensor& flat,
                   std::int64_t exported, std::int64_t ready);

class ImportedChunks {
 public:
  ImportedChunks(Group& group, int peer, const MessageTag& tag, std::int64_t numel)
      : group_(&group), peer_(peer), tag_(tag), numel_(numel) {}
  explicit ImportedChunks(ImportedBuffer whole) : numel_(whole.numel()), chunk_(std::move(whole)) {}

  std::int64_t numel() const { return numel_; }

  /// The next elements, which must not cross a multiple of kChunkElements: where they are, or read
  /// to `buffer`. Valid until the next call. Waits for them.
  const void* next(std::int64_t count, at::ScalarType dtype, void* buffer);

  /// Copies all that is left.
  void read_rest(at::ScalarType dtype, void* to);

 private:
  const ImportedBuffer& await(at::ScalarType dtype);  ///< the chunk with the next element

  Group* group_ = nullptr;  // null: chunk_ is all there is
  int peer_ = 0;
  MessageTag tag_;
  std::int64_t numel_;
  std::int64_t position_ = 0;  // of the next element
  std::int64_t chunk_begin_ = 0;
  std::optional<ImportedBuffer> chunk_;
};

}  // namespace strata
