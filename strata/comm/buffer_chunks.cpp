#include "strata/comm/buffer_chunks.h"

#include <algorithm>

#include "strata/base/errors.h"

namespace strata {
namespace {

MessageTag tag_of_chunk(MessageTag tag, std::int64_t begin) {
  tag.micro_batch = static_cast<std::int32_t>(begin / kChunkElements);
  return tag;
}

}  // namespace

void export_chunks(Group& group, int peer, const MessageTag& tag, const at::Tensor& flat,
                   std::int64_t exported, std::int64_t ready) {
  if (group.reads_in_place(peer)) {
    if (exported < ready && ready == flat.numel())
      group.export_buffer(peer, tag_of_chunk(tag, 0), flat);
    return;
  }
  for (std::int64_t begin = exported; begin < ready; begin += kChunkElements)
    group.export_buffer(peer, tag_of_chunk(tag, begin),
                        flat.narrow(0, begin, std::min(kChunkElements, ready - begin)));
}

const ImportedBuffer& ImportedChunks::await(at::ScalarType dtype) {
  if (!chunk_ || position_ == chunk_begin_ + chunk_->numel()) {
    chunk_.reset();  // released before the wait
    chunk_begin_ = position_;
    chunk_ = group_->import_buffer(peer_, tag_of_chunk(tag_, position_));
    STRATA_CHECK(chunk_->numel() > 0, "comm.chunks");
  }
  STRATA_CHECK(chunk_->dtype() == dtype, "comm.chunks");
  return *chunk_;
}

const void* ImportedChunks::next(std::int64_t count, at::ScalarType dtype, void* buffer) {
  const ImportedBuffer& chunk = await(dtype);
  const std::int64_t first = position_ - chunk_begin_;
  STRATA_CHECK(first + count <= chunk.numel(), "comm.chunks");
  position_ += count;
  if (const void* data = chunk.data())
    return static_cast<const char*>(data) +
           static_cast<std::size_t>(first) * c10::elementSize(dtype);
  chunk.read(first, count, buffer);
  return buffer;
}

void ImportedChunks::read_rest(at::ScalarType dtype, void* to) {
  auto* at = static_cast<char*>(to);
  while (position_ < numel_) {
    const ImportedBuffer& chunk = await(dtype);
    const std::int64_t first = position_ - chunk_begin_, count = chunk.numel() - first;
    chunk.read(first, count, at);
    position_ += count;
    at += static_cast<std::size_t>(count) * c10::elementSize(dtype);
  }
}

}  // namespace strata
