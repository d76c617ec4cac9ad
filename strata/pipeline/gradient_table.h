/// Keeps the gradients of values until the producer's backward sums them.
///
/// One gradient a (value, consuming layer, micro-batch). The sum runs in descending consumer order,
/// whatever arrived first, so that its bits don't depend on the partition.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <tuple>

#include "strata/schedule/wiring.h"

namespace strata {

class GradientTable {
 public:
  void put(int value, int consumer, int micro_batch, at::Tensor gradient);
  at::Tensor take(int value, int consumer, int micro_batch);

  /// Takes the gradients of all consumers and adds them; undefined when there is no consumer.
  at::Tensor take_sum(const Value& value, int index, int micro_batch);

  bool empty() const { return entries_.empty(); }
  void clear() { entries_.clear(); }

 private:
  std::map<std::tuple<int, int, int>, at::Tensor> entries_;
};

}  // namespace strata
