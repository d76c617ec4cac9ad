#include "strata/base/helper_threads.h"

#include <algorithm>
#include <atomic>

namespace strata {

HelperThreads::HelperThreads(int threads) {
  for (int i = 1; i < threads; ++i)
    helpers_.push_back(std::make_unique<Executor>(ExecutorOptions{.name = "helper"}));
}

void HelperThreads::run(std::size_t n, const std::function<void(std::size_t)>& body) {
  std::atomic<std::size_t> next = 0;
  const auto take = [&] {
    try {
      for (std::size_t i = next++; i < n; i = next++) body(i);
    } catch (...) {
      next = n;
      throw;
    }
  };
  std::vector<Completion> done;
  const std::size_t helpers = std::min(helpers_.size(), n > 0 ? n - 1 : 0);
  for (std::size_t i = 0; i < helpers; ++i) done.push_back(helpers_[i]->submit(take));
  std::exception_ptr error;
  try {
    take();
  } catch (...) {
    error = std::current_exception();
  }
  for (const Completion& helper : done)
    if (const std::exception_ptr its = helper.error(); its && !error) error = its;
  if (error) std::rethrow_exception(error);
}

double HelperThreads::take_processor_seconds() {
  double seconds = 0;
  for (const auto& helper : helpers_) seconds += helper->take_processor_seconds();
  return seconds;
}

}  // namespace strata
