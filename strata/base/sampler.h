/// Orders the samples of a run without state, by permutations that are functions of a key.
///
/// Source   Luby & Rackoff 1988; cycle walking: Black & Rogaway, "Ciphers with arbitrary finite
///          domains" (2002).
/// Threads  const, any thread.
/// Errors   InternalError: no samples.
/// Cost     O(1), fewer than four walks expected, no memory.
#pragma once

#include <cstdint>

namespace strata {

/// Permutes the numbers below `count`: a keyed Feistel network permutes the next power of four.
/// Results of `count` or more are permuted again until they are below it.
class Permutation {
 public:
  explicit Permutation(std::int64_t count);
  std::int64_t count() const { return count_; }
  std::int64_t at(std::int64_t index, std::uint64_t key) const;

 private:
  std::int64_t count_;
  int half_bits_;  // half the bits of the permuted domain
};

/// Returns the index in the file of any sample of a run.
///
/// Each epoch visits every sample once, in its own order. So the position of a run is one number,
/// the samples seen, and resuming needs nothing else.
class Sampler {
 public:
  /// Orders `count` samples; without `shuffle` every epoch visits them in ascending order.
  Sampler(std::int64_t count, bool shuffle, std::uint64_t seed);

  std::int64_t epoch(std::int64_t sample) const { return sample / count(); }
  std::int64_t at(std::int64_t sample) const { return at(epoch(sample), sample % count()); }

  /// Returns the sample at `place` < `count` of an epoch.
  std::int64_t at(std::int64_t epoch, std::int64_t place) const;

 private:
  std::int64_t count() const { return permutation_.count(); }

  Permutation permutation_;
  bool shuffle_;
  std::uint64_t seed_;
};

}  // namespace strata
