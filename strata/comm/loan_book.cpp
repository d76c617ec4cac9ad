#include "strata/comm/loan_book.h"

#include <utility>
#include <vector>

namespace strata {

// What is returned is freed outside the lock.

std::uint64_t LoanBook::lend(int process, at::Tensor tensor) {
  const std::lock_guard lock(mutex_);
  lent_.emplace(Key{process, ++last_}, std::move(tensor));
  return last_;
}

void LoanBook::returned(int process, std::uint64_t number) {
  std::map<Key, at::Tensor>::node_type ended;
  const std::lock_guard lock(mutex_);
  ended = lent_.extract({process, number});
}

void LoanBook::all_returned(int process) {
  std::vector<at::Tensor> ended;
  const std::lock_guard lock(mutex_);
  const auto begin = lent_.lower_bound({process, 0}), end = lent_.lower_bound({process + 1, 0});
  for (auto at = begin; at != end; ++at) ended.push_back(std::move(at->second));
  lent_.erase(begin, end);
}

}  // namespace strata
