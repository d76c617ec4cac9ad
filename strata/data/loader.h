/// Makes the mini-batches of a run from windows, in an order that needs no memory.
/// Shapes   inputs {tokens, targets}, both int64 [samples, context].
/// Threads  const, any thread: every rank reads its own copy.
/// Cost     one pass over the tokens; the pages are read from disk when first touched.
#pragma once

#include <cstdint>

#include "strata/base/sampler.h"
#include "strata/data/batch.h"
#include "strata/data/corpus.h"

namespace strata {

/// Reads samples endlessly: mini-batches cross the ends of epochs, so no sample is dropped and no
/// batch is short. The only state is the number of samples seen, which the caller keeps.
class TrainingLoader {
 public:
  TrainingLoader(Windows windows, bool shuffle, std::uint64_t seed);

  /// Samples [samples_seen, samples_seen + mini_batch) of the run.
  MiniBatch at(std::int64_t samples_seen, std::int64_t mini_batch) const;

  /// The number of epochs, with fraction, after so many samples.
  double epochs(std::int64_t samples_seen) const;

 private:
  Windows windows_;
  Sampler sampler_;
};

/// Reads every window once, in the order of the file; the last mini-batch may be short.
class ValidationLoader {
 public:
  explicit ValidationLoader(Windows windows) : windows_(std::move(windows)) {}

  std::int64_t samples() const { return windows_.count; }

  /// Windows [first, first + mini_batch), cut at the end; none beyond it (samples == 0).
  MiniBatch at(std::int64_t first, std::int64_t mini_batch) const;

 private:
  Windows windows_;
};

}  // namespace strata
