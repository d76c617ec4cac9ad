// The lender forgets a loan in its own thread, behind the wait that it gave to its stream: memory that
// an allocator hands out again in the order of that stream is then safe.
#include "strata/comm/loan.h"

#include <algorithm>
#include <string>
#include <utility>

#include "strata/base/errors.h"

namespace strata {

Loan::Loan(const at::Tensor& tensor, int reader, bool keep)
    : begin_(static_cast<const std::byte*>(tensor.const_data_ptr())),
      end_(begin_ + tensor.nbytes()),
      reader_(reader) {
  if (keep) kept_ = tensor;
}

void Loan::end(Event read) {
  const std::lock_guard lock(mutex_);
  STRATA_CHECK(!read_, "comm.loan");
  read_ = std::move(read);
}

std::optional<Event> Loan::ended() const {
  const std::lock_guard lock(mutex_);
  return read_;
}

bool Loan::overlaps(const at::Tensor& bytes) const {
  const auto* begin = static_cast<const std::byte*>(bytes.const_data_ptr());
  return begin < end_ && begin_ < begin + bytes.nbytes();
}

std::shared_ptr<Loan> Loans::lend(const at::Tensor& tensor, int reader, bool keep) {
  auto loan = std::make_shared<Loan>(tensor, reader, keep);
  const std::lock_guard lock(mutex_);
  return open_.emplace_back(std::move(loan));
}

void Loans::reclaim(const Stream& stream) {
  std::vector<std::shared_ptr<Loan>> ended;  // what they keep is freed outside the lock
  const std::lock_guard lock(mutex_);
  std::erase_if(open_, [&](const std::shared_ptr<Loan>& loan) {
    const std::optional<Event> read = loan->ended();
    if (!read) return false;
    stream.wait(*read);
    ended.push_back(loan);
    return true;
  });
}

void Loans::before_write(const at::Tensor& bytes, const Stream& stream) {
  reclaim(stream);
  const std::lock_guard lock(mutex_);
  const auto found =
      std::ranges::find_if(open_, [&](const auto& loan) { return loan->overlaps(bytes); });
  if (found == open_.end()) return;
  throw InternalError({.operation = "comm.before_write",
                       .what = "bytes are written that another rank may still read",
                       .expected = "a collective since they were lent, by which it has read them",
                       .got = "not read by rank " + std::to_string((*found)->reader()),
                       .fix = ""});
}

std::shared_ptr<const void> reading(std::shared_ptr<Loan> loan, Stream stream) {
  if (!loan) return nullptr;
  Loan* const read = loan.get();
  return {read, [loan = std::move(loan), stream = std::move(stream)](const void*) {
            loan->end(stream.record());
          }};
}

}  // namespace strata
