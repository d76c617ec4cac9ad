/// Lets ranks of other processes read a tensor where it is: one side exports it, the other imports,
/// reads and releases it.
///
/// Within a process the importer gets the tensor itself; from a same-host process a reference to
/// its memory; from any other its bytes have arrived with the message. Who imports need not know.
///
/// A flat tensor that is read from front to back goes in chunks where its reader doesn't read it in
/// place, so that the next is on its way while one is used.
///
/// Threads  ExportedBuffers from any; ImportedBuffer one at a time, and it ends before its rank.
/// Errors   Cancelled when the exporter is gone or the run has failed.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "strata/comm/loan.h"
#include "strata/comm/message.h"

namespace strata {

/// Keeps exported tensors alive until the processes that read them have released them.
class ExportedBuffers {
 public:
  /// The number under which `process` releases it.
  std::uint64_t add(int process, at::Tensor tensor);
  void release(int process, std::uint64_t number);
  /// The process reads nothing any more: neither what there is nor what is added later.
  void release_all(int process);

 private:
  using Key = std::pair<int, std::uint64_t>;
  std::mutex mutex_;
  std::uint64_t last_ = 0;  // 0: none
  std::set<int> released_;  // processes
  std::map<Key, at::Tensor> tensors_;
};

/// A tensor in the memory of another process, which keeps it until this object ends.
class RemoteBuffer {
 public:
  struct Source {
    /// Copies from the process's memory; throws if what was read is worth nothing.
    std::function<void(std::uint64_t address, std::size_t count, void* to)> read;
    std::function<void()> release;  ///< called once
  };
  RemoteBuffer(const Frame& frame, Source source);
  ~RemoteBuffer() { source_.release(); }
  RemoteBuffer(const RemoteBuffer&) = delete;
  RemoteBuffer& operator=(const RemoteBuffer&) = delete;

  std::int64_t numel() const { return numel_; }
  at::ScalarType dtype() const { return dtype_; }
  void read(std::int64_t first, std::int64_t count, void* to) const;
  at::Tensor copy() const;
  at::Tensor copy(at::Tensor flat) const;  ///< in the memory of `flat`, of as many elements

 private:
  std::vector<std::int64_t> sizes_, strides_;
  at::ScalarType dtype_;
  std::int64_t numel_;
  std::uint64_t address_;
  Source source_;
};

class ImportedBuffer {
 public:
  /// `stream`: of the reader, if the message is a loan: it ends behind what the stream has when the last
  /// copy of this object goes.
  explicit ImportedBuffer(Message message, const Stream& stream = Stream());
  explicit ImportedBuffer(at::Tensor tensor) : local_(std::move(tensor)) {}

  std::int64_t numel() const;
  at::ScalarType dtype() const;
  bool lent() const { return reading_ != nullptr; }  ///< the bytes are the sender's

  /// Its elements, if they are in this process; else null.
  const void* data() const;

  /// Copies some elements, counted as they lie in memory.
  void read(std::int64_t first, std::int64_t count, void* to) const;

  /// The exported tensor itself, or a copy of the remote one, charged to this thread's account.
  at::Tensor tensor() const;
  operator at::Tensor() const { return tensor(); }  // NOLINT: for those who read all of it anyway

 private:
  std::shared_ptr<const void> reading_;  // null: no loan
  at::Tensor local_;                     // undefined: remote
  std::shared_ptr<const RemoteBuffer> remote_;
};

class Group;

constexpr std::int64_t kChunkElements = 1 << 18;

/// Exports what is ready of a flat tensor, elements [0, ready), apart from [0, exported), which was
/// already; both are multiples of kChunkElements or all. `there`: as of Group::export_buffer().
void export_chunks(Group& group, int peer, const MessageTag& tag, const at::Tensor& flat,
                   std::int64_t exported, std::int64_t ready, const Completion& there = {});

/// A flat tensor that a rank reads from front to back, whole or in chunks: what arrives says how long
/// it is.
class ImportedChunks {
 public:
  ImportedChunks(Group& group, int peer, const MessageTag& tag, std::int64_t numel)
      : group_(&group), peer_(peer), tag_(tag), numel_(numel) {}
  explicit ImportedChunks(ImportedBuffer whole) : numel_(whole.numel()), chunk_(std::move(whole)) {}

  std::int64_t numel() const { return numel_; }

  /// The next elements, which must not cross a multiple of kChunkElements: where they are, or read
  /// to `buffer`. Valid until the next call. Waits for them.
  const void* next(std::int64_t count, at::ScalarType dtype, void* buffer);

  /// All of it at once, where it is in this process; valid until this object goes.
  at::Tensor whole(at::ScalarType dtype);

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
