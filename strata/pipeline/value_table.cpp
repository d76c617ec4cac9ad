// The first gradient may be a tensor of autograd or of another rank, so it is not written to; from the
// first addition on the sum is our own.
#include "strata/pipeline/value_table.h"

#include <ATen/ops/add.h>

#include "strata/base/errors.h"

namespace strata {

void GradientTable::put(int value, int consumer, int micro_batch, at::Tensor gradient) {
  const bool fresh =
      entries_.emplace(std::tuple(value, consumer, micro_batch), std::move(gradient)).second;
  STRATA_CHECK(fresh, "pipeline.put_gradient");
}

at::Tensor GradientTable::take(int value, int consumer, int micro_batch) {
  const auto entry = entries_.find({value, consumer, micro_batch});
  STRATA_CHECK(entry != entries_.end(), "pipeline.take_gradient");
  at::Tensor gradient = std::move(entry->second);
  entries_.erase(entry);
  return gradient;
}

at::Tensor GradientTable::take_sum(const Value& value, int index, int micro_batch) {
  at::Tensor sum;
  bool ours = false;  // the first addition makes a tensor of our own; the next ones may write to it
  for (auto consumer = value.consumers.rbegin(); consumer != value.consumers.rend(); ++consumer) {
    at::Tensor gradient = take(index, *consumer, micro_batch);
    if (!sum.defined()) {
      sum = std::move(gradient);
    } else if (!ours) {
      sum = at::add(sum, gradient);
      ours = true;
    } else {
      sum.add_(gradient);
    }
  }
  return sum;
}

}  // namespace strata
