// The exporter drops an export in its own thread, after the wait that it enqueued on its stream.
// Memory that an allocator reuses in the order of that stream is then safe.
#include "strata/comm/exports.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include "strata/base/errors.h"

namespace strata {

Export::Export(const at::Tensor& tensor, int reader, bool keep,
               std::shared_ptr<std::atomic<int>> ended)
    : begin_(static_cast<const std::byte*>(tensor.const_data_ptr())),
      end_(begin_ + tensor.nbytes()),
      reader_(reader),
      ended_(std::move(ended)) {
  if (keep) kept_ = tensor;
}

// Counted under the lock, so that a thread that sees the end also sees the count.
void Export::end(Completion read) {
  const std::lock_guard lock(mutex_);
  STRATA_CHECK(!read_ && !failure_, "comm.exports");
  read_ = std::move(read);
  ++*ended_;
}

void Export::fail(std::exception_ptr failure) {
  const std::lock_guard lock(mutex_);
  if (!read_ && !failure_) ++*ended_;
  failure_ = std::move(failure);
}

bool Export::has_ended() const {
  const std::lock_guard lock(mutex_);
  return read_ || failure_;
}

Completion Export::read() const {
  const std::lock_guard lock(mutex_);
  try {
    if (failure_) std::rethrow_exception(failure_);
  } catch (const std::exception& error) {
    throw SystemError({.operation = "comm.exports",
                       .where = "rank " + std::to_string(reader_),
                       .what = "its device cannot report when it has read the exported buffer",
                       .expected = "an event of its stream",
                       .got = error.what(),
                       .fix =
                           "look for errors of that GPU in dmesg (Xid), then resume from the last "
                           "checkpoint with --resume"});
  }
  return *read_;
}

bool Export::overlaps(const at::Tensor& bytes) const {
  const auto* begin = static_cast<const std::byte*>(bytes.const_data_ptr());
  return begin < end_ && begin_ < begin + bytes.nbytes();
}

std::shared_ptr<Export> Exports::add(const at::Tensor& tensor, int reader, bool keep) {
  auto open_export = std::make_shared<Export>(tensor, reader, keep, ended_);
  const std::lock_guard lock(mutex_);
  return open_.emplace_back(std::move(open_export));
}

// Another thread that finds no export writes to its bytes, so the stream's wait is enqueued before.
void Exports::reclaim(const Stream& stream) {
  // A recording must not wait for events outside of it; the rank reclaims before it records.
  if (*ended_ == 0 || (stream.queue() && stream.queue()->recording())) return;
  std::vector<std::shared_ptr<Export>> ended;  // what they keep is freed outside the lock
  std::exception_ptr failure;
  {
    const std::lock_guard lock(mutex_);
    const auto begin = std::stable_partition(
        open_.begin(), open_.end(),
        [](const std::shared_ptr<Export>& open_export) { return !open_export->has_ended(); });
    ended.assign(std::move_iterator(begin), std::move_iterator(open_.end()));
    open_.erase(begin, open_.end());
    for (const std::shared_ptr<Export>& open_export : ended) {
      try {
        stream.wait(open_export->read());
      } catch (...) {
        failure = std::current_exception();
      }
    }
    *ended_ -= static_cast<int>(ended.size());
  }
  if (failure) std::rethrow_exception(failure);
}

void Exports::before_write(const at::Tensor& bytes, const Stream& stream) {
  reclaim(stream);
  const std::lock_guard lock(mutex_);
  const auto found = std::ranges::find_if(
      open_, [&](const auto& open_export) { return open_export->overlaps(bytes); });
  if (found == open_.end()) return;
  throw InternalError({.operation = "comm.before_write",
                       .what = "bytes are written that another rank may still read",
                       .expected = "a collective since the export, by which it has read them",
                       .got = "not read by rank " + std::to_string((*found)->reader()),
                       .fix = ""});
}

std::shared_ptr<const void> reading(std::shared_ptr<Export> open_export, Stream stream) {
  if (!open_export) return nullptr;
  Export* const read = open_export.get();
  return {read, [open_export = std::move(open_export), stream = std::move(stream)](const void*) {
            try {
              open_export->end(stream.record());
            } catch (...) {
              open_export->fail(std::current_exception());
            }
          }};
}

}  // namespace strata
