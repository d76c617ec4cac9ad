/// Reads the next mini-batch while the ranks of a process compute the current one. Each mini-batch
/// is read once for all ranks of the process.
///
/// Threads  any thread may call at(). One thread reads, with a pool of its own whose threads share
///          the samples of a mini-batch where the source allows that (parallel.h).
/// Cost     memory for the mini-batches of two steps, charged to no rank.
/// Errors   at() throws, in every rank, what the source threw for that mini-batch. An error of a
///          mini-batch that no rank asks for is dropped.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>

#include "strata/base/executor.h"
#include "strata/base/monitor.h"
#include "strata/data/batch.h"
#include "strata/device/thread_pool.h"

namespace strata {

/// Where mini-batches come from.
struct MiniBatchSource {
  std::function<MiniBatch(std::int64_t samples_seen)> at;
  std::function<std::int64_t(std::int64_t samples_seen)> seen_after;  ///< after that mini-batch
};

class ReadAhead {
 public:
  ReadAhead(MiniBatchSource source, int threads);
  ReadAhead(const ReadAhead&) = delete;
  ReadAhead& operator=(const ReadAhead&) = delete;

  /// Returns the mini-batch after so many samples and, unless it is the last of the run, begins to
  /// read the next one. Forgets the earlier ones: positions do not decrease.
  MiniBatch at(std::int64_t samples_seen, bool is_last = false);

 private:
  struct Read {
    MiniBatch batch;
    Completion ended;
  };
  using Reads = std::map<std::int64_t, std::shared_ptr<Read>>;  // by samples seen

  std::shared_ptr<Read> begun(Reads& reads, std::int64_t samples_seen);

  const MiniBatchSource source_;
  ThreadPool pool_;  // of the reader's thread
  Monitor<Reads> reads_;
  Executor reader_;  // last: it uses what is above
};

}  // namespace strata
