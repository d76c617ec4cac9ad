// Released buffers are freed outside the lock: the last reference may be here, and freeing a tensor
// calls into its account.
#include "strata/comm/shared_buffer.h"

#include <ATen/ops/empty_strided.h>

#include <algorithm>
#include <cstring>

#include "strata/base/errors.h"
#include "strata/comm/group.h"
#include "strata/device/device.h"

namespace strata {

std::uint64_t ExportedBuffers::add(int process, at::Tensor tensor) {
  const std::lock_guard lock(mutex_);
  ++last_;
  if (!released_.contains(process)) tensors_.emplace(Key{process, last_}, std::move(tensor));
  return last_;
}

void ExportedBuffers::release(int process, std::uint64_t number) {
  std::map<Key, at::Tensor>::node_type released;
  const std::lock_guard lock(mutex_);
  released = tensors_.extract({process, number});
}

void ExportedBuffers::release_all(int process) {
  std::vector<at::Tensor> released;
  const std::lock_guard lock(mutex_);
  released_.insert(process);
  const auto begin = tensors_.lower_bound({process, 0}),
             end = tensors_.lower_bound({process + 1, 0});
  for (auto at = begin; at != end; ++at) released.push_back(std::move(at->second));
  tensors_.erase(begin, end);
}

RemoteBuffer::RemoteBuffer(const Frame& frame, Source source)
    : sizes_(frame.sizes, frame.sizes + frame.dims),
      strides_(frame.strides, frame.strides + frame.dims),
      dtype_(static_cast<at::ScalarType>(frame.dtype)),
      numel_(static_cast<std::int64_t>(frame.tensor_bytes / c10::elementSize(dtype_))),
      address_(frame.memory),
      source_(std::move(source)) {}

void RemoteBuffer::read(std::int64_t first, std::int64_t count, void* to) const {
  STRATA_CHECK(first >= 0 && count >= 0 && first + count <= numel_, "comm.read");
  const std::size_t element = c10::elementSize(dtype_);
  source_.read(address_ + static_cast<std::uint64_t>(first) * element,
               static_cast<std::size_t>(count) * element, to);
}

at::Tensor RemoteBuffer::copy() const {
  at::Tensor tensor = at::empty_strided(sizes_, strides_, host_options(dtype_));
  read(0, numel_, tensor.data_ptr());
  return tensor;
}

at::Tensor RemoteBuffer::copy(at::Tensor flat) const {
  read(0, numel_, flat.data_ptr());
  return flat.as_strided(sizes_, strides_);
}

ImportedBuffer::ImportedBuffer(Message message, const Stream& stream)
    : reading_(reading(std::move(message.open_export), stream)),
      local_(std::move(message.tensor)),
      remote_(std::move(message.remote)) {}

std::int64_t ImportedBuffer::numel() const { return remote_ ? remote_->numel() : local_.numel(); }

at::ScalarType ImportedBuffer::dtype() const {
  return remote_ ? remote_->dtype() : local_.scalar_type();
}

const void* ImportedBuffer::data() const { return remote_ ? nullptr : local_.const_data_ptr(); }

void ImportedBuffer::read(std::int64_t first, std::int64_t count, void* to) const {
  if (remote_) return remote_->read(first, count, to);
  STRATA_CHECK(local_.is_non_overlapping_and_dense() && first >= 0 && count >= 0 &&
                   first + count <= local_.numel(),
               "comm.read");
  const std::size_t element = local_.element_size();
  const auto* from = static_cast<const char*>(local_.const_data_ptr());
  if (count > 0)
    std::memcpy(to, from + static_cast<std::size_t>(first) * element,
                static_cast<std::size_t>(count) * element);
}

at::Tensor ImportedBuffer::tensor() const { return remote_ ? remote_->copy() : local_; }

namespace {

MessageTag tag_of_chunk(MessageTag tag, std::int64_t begin) {
  tag.micro_batch = static_cast<std::int32_t>(begin / kChunkElements);
  return tag;
}

}  // namespace

void export_chunks(Group& group, int peer, const MessageTag& tag, const at::Tensor& flat,
                   std::int64_t exported, std::int64_t ready, const Completion& there) {
  if (group.reads_in_place(peer)) {
    if (exported < ready && ready == flat.numel())
      group.export_buffer(peer, tag_of_chunk(tag, 0), flat, there);
    return;
  }
  for (std::int64_t begin = exported; begin < ready; begin += kChunkElements)
    group.export_buffer(peer, tag_of_chunk(tag, begin),
                        flat.narrow(0, begin, std::min(kChunkElements, ready - begin)), there);
}

// The exporter decides whether there is one message or one for each chunk; this rank assumes what
// it would do itself.
bool ImportedChunks::has_arrived() const {
  if (!group_ || numel_ == 0) return true;
  const std::int64_t end = group_->reads_in_place(peer_) ? 1 : numel_;
  for (std::int64_t begin = position_; begin < end; begin += kChunkElements)
    if (!group_->has_arrived(peer_, tag_of_chunk(tag_, begin))) return false;
  return true;
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

at::Tensor ImportedChunks::whole(at::ScalarType dtype) {
  const ImportedBuffer& chunk = await(dtype);
  STRATA_CHECK(position_ == 0 && chunk.numel() == numel_ && chunk.data(), "comm.chunks");
  position_ = numel_;
  return chunk.tensor();
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
