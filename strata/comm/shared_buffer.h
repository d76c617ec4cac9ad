/// Lets ranks of other processes read a tensor in place: one side exports it, the other imports,
/// reads and releases it.
///
/// Within a process the importer gets the tensor itself; from a same-host process a reference to
/// its memory; from any other its bytes, which arrive with the message. Importers need not
/// distinguish these cases.
///
/// A flat tensor that is read from front to back is sent in chunks if its reader cannot read it in
/// place, so that the next chunk is in transit while one is used.
///
/// Threads  ExportedBuffers from any; ImportedBuffer one at a time, destroyed before its rank ends.
/// Errors   Cancelled when the exporter has ended or the run has failed.
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

#include "strata/comm/exports.h"
#include "strata/comm/message.h"

namespace strata {

/// Keeps exported tensors alive until the processes that read them have released them.
class ExportedBuffers {
 public:
  /// The number under which `process` releases it.
  std::uint64_t add(int process, at::Tensor tensor);
  void release(int process, std::uint64_t number);
  /// The process reads no more: neither existing nor later exports.
  void release_all(int process);

 private:
  using Key = std::pair<int, std::uint64_t>;
  std::mutex mutex_;
  std::uint64_t last_ = 0;  // 0: none
  std::set<int> released_;  // processes
  std::map<Key, at::Tensor> tensors_;
};

/// A tensor in the memory of another process, which keeps it until this object is destroyed.
class RemoteBuffer {
 public:
  struct Source {
    /// Copies from the process's memory; throws if the read bytes are invalid.
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
  /// `stream`: the reader's, if the message is an export on a device: the export ends after the
  /// work on this stream when the last copy of this object is destroyed.
  explicit ImportedBuffer(Message message, const Stream& stream = Stream());
  explicit ImportedBuffer(at::Tensor tensor) : local_(std::move(tensor)) {}

  std::int64_t numel() const;
  at::ScalarType dtype() const;
  bool is_exported() const { return reading_ != nullptr; }  ///< the bytes are the sender's

  /// Its elements, if they are in this process; else null.
  const void* data() const;

  /// Copies some elements, counted as they lie in memory.
  void read(std::int64_t first, std::int64_t count, void* to) const;

  /// The exported tensor itself, or a copy of the remote one, charged to this thread's account.
  at::Tensor tensor() const;
  operator at::Tensor() const { return tensor(); }  // NOLINT: for readers of the whole tensor

 private:
  std::shared_ptr<const void> reading_;  // null: no export on a device
  at::Tensor local_;                     // undefined: remote
  std::shared_ptr<const RemoteBuffer> remote_;
};

class Group;

constexpr std::int64_t kChunkElements = 1 << 18;

/// Exports what is ready of a flat tensor, elements [0, ready), apart from [0, exported), which was
/// already; both are multiples of kChunkElements or all. `there`: as of Group::export_buffer().
void export_chunks(Group& group, int peer, const MessageTag& tag, const at::Tensor& flat,
                   std::int64_t exported, std::int64_t ready, const Completion& there = {});

/// A flat tensor that a rank reads from front to back, whole or in chunks; the received data
/// determines its length.
class ImportedChunks {
 public:
  ImportedChunks(Group& group, int peer, const MessageTag& tag, std::int64_t numel)
      : group_(&group), peer_(peer), tag_(tag), numel_(numel) {}
  explicit ImportedChunks(ImportedBuffer whole) : numel_(whole.numel()), chunk_(std::move(whole)) {}

  std::int64_t numel() const { return numel_; }

  /// Whether reading would probably not wait.
  bool has_arrived() const;

  /// Waits for the next elements, which must not cross a multiple of kChunkElements, and returns
  /// their address: in place, or read to `buffer`. Valid until the next call.
  const void* next(std::int64_t count, at::ScalarType dtype, void* buffer);

  /// All of it at once, where it is in this process; valid until this object goes.
  at::Tensor whole(at::ScalarType dtype);

  /// Copies all that is left.
  void read_rest(at::ScalarType dtype, void* to);

 private:
  const ImportedBuffer& await(at::ScalarType dtype);  ///< the chunk with the next element

  Group* group_ = nullptr;  // null: chunk_ is the whole tensor
  int peer_ = 0;
  MessageTag tag_;
  std::int64_t numel_;
  std::int64_t position_ = 0;  // index of the next element
  std::int64_t chunk_begin_ = 0;
  std::optional<ImportedBuffer> chunk_;
};

}  // namespace strata
