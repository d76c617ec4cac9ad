/// Keeps the keys and values of the tokens that a rank's layers have decoded, for several sequences
/// of different lengths.
///
/// Units    positions: tokens of a sequence, from its first one.
/// Threads  one rank's thread.
/// Cost     all bytes at construction: 2 x sequences x positions x width of the key heads, per
///          layer.
/// Errors   InternalError: no tokens, or more than positions() in a sequence.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "strata/device/device.h"
#include "strata/nn/graph/sequential.h"

namespace strata {

/// Tokens to add to the end of a sequence.
struct NewTokens {
  int sequence = 0;
  std::span<const std::int64_t> tokens;
};

class KeyValueCache {
 public:
  /// For `layers` of the model and `sequences` texts of at most `positions` tokens.
  KeyValueCache(const Sequential& model, const std::vector<int>& layers, int sequences,
                std::int64_t positions, Device device);

  /// Makes room for the tokens, packed in this order. The layers' next forward must fill it.
  const std::map<int, LayerCache>& append(std::span<const NewTokens> batch);

  std::int64_t positions() const { return positions_; }
  std::int64_t length(int sequence) const { return lengths_.at(sequence); }  ///< tokens so far
  void clear(int sequence) { lengths_.at(sequence) = 0; }

 private:
  std::map<int, LayerCache> layers_;
  std::int64_t positions_ = 0;
  std::vector<std::int64_t> lengths_;  // per sequence
};

}  // namespace strata
