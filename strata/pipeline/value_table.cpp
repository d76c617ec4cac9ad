// The first gradient may belong to autograd or another rank, so it is not written to; from the
// first addition on the table owns the sum.
#include "strata/pipeline/value_table.h"

#include <ATen/ops/add.h>

#include "strata/base/errors.h"

namespace strata {

void write_to(const at::Tensor& from, const at::Tensor& to) {
  STRATA_CHECK_EQ(from.defined(), to.defined(), "pipeline.copy_tables");
  if (!from.defined() || from.is_same(to) || from.const_data_ptr() == to.const_data_ptr()) return;
  STRATA_CHECK(from.sizes() == to.sizes() && from.scalar_type() == to.scalar_type(),
               "pipeline.copy_tables");
  to.copy_(from);
}

at::Tensor dense_form(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.is_non_overlapping_and_dense()) return tensor;
  return tensor.clone(at::MemoryFormat::Contiguous);
}

void ValueTable::copy_to(ValueTable& to) const {
  STRATA_CHECK_EQ(entries_.size(), to.entries_.size(), "pipeline.copy_tables");
  for (const auto& [key, entry] : entries_) write_to(entry.tensor, to.entries_.at(key).tensor);
}

void ValueTable::make_dense() {
  for (auto& [key, entry] : entries_) entry.tensor = dense_form(entry.tensor);
}

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
  // the first addition creates a tensor of the table; later ones may write to it
  bool ours = false;
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
