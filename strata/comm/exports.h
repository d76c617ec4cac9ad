/// Records which bytes a rank has exported to others, until they have read them and the rank's
/// stream waits for those reads.
///
/// A reader ends an export with the event after which it has read; the exporter's stream waits for
/// that event before it writes to the bytes or frees them. A write to bytes that a rank may still
/// read is rejected, so the rule of Group::export_buffer() is checked.
///
/// Between processes a tensor is a copy or is read in place by a CPU; these are not recorded here,
/// nor are tensors passed between CPU ranks, which have read when they report it.
///
/// Threads  Exports: any; an Export is ended by its reader's thread.
/// Cost     as long as no reader has ended, one atomic load per message, for any number of exports.
/// Errors   InternalError: a write to bytes that a rank has not finished reading. SystemError: a
///          reader's stream cannot report when it has read.
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstddef>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "strata/device/device.h"

namespace strata {

class Export {
 public:
  /// `keep`: the reader's stream differs from the exporter's, so the bytes must not be freed before
  /// the read. end() and fail() increment `ended`.
  Export(const at::Tensor& tensor, int reader, bool keep, std::shared_ptr<std::atomic<int>> ended);

  void end(Completion read);  ///< once
  /// instead of end(): it is unknown when the bytes are read
  void fail(std::exception_ptr failure);
  bool has_ended() const;
  Completion read() const;  ///< after end(); throws a SystemError after fail()
  bool overlaps(const at::Tensor& bytes) const;
  int reader() const { return reader_; }

 private:
  const std::byte *begin_, *end_;
  at::Tensor kept_;
  int reader_;
  std::shared_ptr<std::atomic<int>> ended_;
  mutable std::mutex mutex_;
  std::optional<Completion> read_;
  std::exception_ptr failure_;
};

/// The exports of one rank.
class Exports {
 public:
  std::shared_ptr<Export> add(const at::Tensor& tensor, int reader, bool keep);

  /// Makes the stream wait for the readers that have ended, then drops those exports.
  void reclaim(const Stream& stream);

  /// The same, before a write to `bytes`: all their readers must have ended.
  void before_write(const at::Tensor& bytes, const Stream& stream);

 private:
  const std::shared_ptr<std::atomic<int>> ended_ =
      std::make_shared<std::atomic<int>>(0);  // of open_
  std::mutex mutex_;
  std::vector<std::shared_ptr<Export>> open_;
};

/// Ends an export after what its reader has enqueued on the stream, when the last copy is
/// destroyed. If the stream fails, the export fails and the exporter throws, because a destructor
/// cannot.
std::shared_ptr<const void> reading(std::shared_ptr<Export> open_export, Stream stream);

}  // namespace strata
