/// Says which window the k-th sample of a run is, for every k, without any state.
///
/// Each epoch visits every window once, in an order of its own: a keyed Feistel network permutes
/// the next power of four, and what falls outside is permuted again until it falls inside. So the
/// position of a run is one number, the samples seen, and resuming is free.
///
/// Source   Luby & Rackoff 1988; cycle walking: Black & Rogaway, "Ciphers with arbitrary finite
/// domains"
///          (2002).
/// Threads  const, any thread.
/// Cost     O(1), fewer than four walks expected, no memory.
#pragma once

#include <cstdint>

namespace strata {

class Sampler {
 public:
  /// `count` windows; without `shuffle` every epoch visits them in ascending order.
  Sampler(std::int64_t count, bool shuffle, std::uint64_t seed);

  std::int64_t epoch(std::int64_t sample) const { return sample / count_; }
  std::int64_t window(std::int64_t sample) const;

 private:
  std::uint64_t permute(std::uint64_t index, std::uint64_t key) const;

  std::int64_t count_;
  bool shuffle_;
  std::uint64_t seed_;
  int half_bits_;  // half the bits of the permuted domain
};

}  // namespace strata
