/// Divides the iterations of a loop among the calling thread and threads that help it.
///
///     HelperThreads threads(4);
///     threads.run(tables, [&](std::size_t i) { read(i); });
///
/// device/thread_pool.h serves the operators of one rank and needs libtorch. This serves threads of
/// servers and of the embedding worker, several at the same time.
///
/// Threads  any thread may call run(), also within an iteration. It does not wait for a helper that
///          is busy elsewhere or gets no processor.
/// Cost     about 10 us a call with more than one iteration and thread.
/// Errors   run() throws the first error of an iteration when all threads have ended theirs; the
///          iterations that no thread had begun are not run.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "strata/base/executor.h"

namespace strata {

class HelperThreads {
 public:
  explicit HelperThreads(int threads);  ///< the caller counts as one

  /// Calls body(0) ... body(n - 1) once each, in any order; returns when all have ended.
  void run(std::size_t n, const std::function<void(std::size_t)>& body);

  /// Processor seconds of the helpers since the last call.
  double take_processor_seconds();

 private:
  std::vector<std::unique_ptr<Executor>> helpers_;
};

}  // namespace strata
