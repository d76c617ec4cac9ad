/// Holds what the layers of one rank keep of the tokens that were decoded: keys and values.
///
/// Units    positions: tokens of a text, from its first one.
/// Threads  one rank's thread.
/// Cost     all bytes at once, when it is made: 2 x positions x width of the key heads a layer.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "strata/device/device.h"
#include "strata/nn/sequential.h"

namespace strata {

class KeyValueCache {
 public:
  /// For `layers` of the model and one text of at most `positions` tokens.
  KeyValueCache(const Sequential& model, const std::vector<int>& layers, std::int64_t positions,
                Device device);

  const LayerCache& layer(int layer) const { return layers_.at(layer); }

  std::int64_t positions() const { return positions_; }
  std::int64_t length() const { return length_; }  ///< tokens so far
  void append(std::int64_t tokens);                ///< all layers have kept so many more
  void clear() { append(-length_); }

 private:
  std::map<int, LayerCache> layers_;
  std::int64_t positions_ = 0;
  std::int64_t length_ = 0;
};

}  // namespace strata
