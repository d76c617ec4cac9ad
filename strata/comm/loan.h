/// Remembers which bytes a rank has lent to others, until they have read them and its stream knows it.
///
/// A reader ends a loan with the event behind which it has read; the lender's stream waits for that
/// event before it writes to the bytes or gives them back. A write to bytes that somebody may still
/// read is refused: the rule of Group::export_buffer() is checked, not promised.
///
/// Between processes a tensor is a copy, or is read in place by a processor; these are no loans. Nor is
/// what a processor hands to another: who reads there has read when he says so.
///
/// Threads  Loans: any; a Loan is ended by its reader's thread.
/// Cost     as long as no reader has ended, one atomic load a message, however much is lent.
/// Errors   InternalError: bytes are written that a rank has not finished reading. SystemError: a reader's
///          stream cannot tell when it has read.
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

class Loan {
 public:
  /// `keep`: the reader's work is ordered by another stream than the lender's, so that the bytes must
  /// not be freed before that has happened. `ended` is raised by end() and fail().
  Loan(const at::Tensor& tensor, int reader, bool keep, std::shared_ptr<std::atomic<int>> ended);

  void end(Completion read);              ///< once
  void fail(std::exception_ptr failure);  ///< instead: when the bytes are read cannot be known
  bool has_ended() const;
  Completion read() const;  ///< of one that has ended; throws a SystemError if it failed
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

/// What one rank has lent.
class Loans {
 public:
  std::shared_ptr<Loan> lend(const at::Tensor& tensor, int reader, bool keep);

  /// Makes the stream wait for the readers that have ended, and only then forgets them.
  void reclaim(const Stream& stream);

  /// The same, before a write to `bytes`: all their readers must have ended.
  void before_write(const at::Tensor& bytes, const Stream& stream);

 private:
  const std::shared_ptr<std::atomic<int>> ended_ =
      std::make_shared<std::atomic<int>>(0);  // of open_
  std::mutex mutex_;
  std::vector<std::shared_ptr<Loan>> open_;
};

/// Ends a loan, behind what its reader has given to the stream by then, when the last copy goes. A stream
/// that fails then fails the loan: the lender throws it, for the end of an object cannot.
std::shared_ptr<const void> reading(std::shared_ptr<Loan> loan, Stream stream);

}  // namespace strata
