/// Keeps lent tensors alive until the processes that read them have returned them.
///
/// Threads  all methods from any thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <mutex>
#include <utility>

namespace strata {

class LoanBook {
 public:
  /// The number under which `process` returns it.
  std::uint64_t lend(int process, at::Tensor tensor);
  void returned(int process, std::uint64_t number);
  /// The process reads nothing any more.
  void all_returned(int process);

 private:
  using Key = std::pair<int, std::uint64_t>;
  std::mutex mutex_;
  std::uint64_t last_ = 0;  // 0: no loan
  std::map<Key, at::Tensor> lent_;
};

}  // namespace strata
