#include "strata/optim/adamw.h"

#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/full.h>

#include "strata/optim/decay_ranges.h"

namespace strata {

void AdamW::update(const UpdateRange& range, std::int64_t step, double learning_rate) const {
  const at::Tensor step_tensor =
      at::full({}, static_cast<double>(step), range.weights.options().dtype(at::kFloat));
  for_each_decay_range(range, slot_names().size(), [&](const UpdateRange& part, bool decayed) {
    at::_fused_adamw_({part.weights}, {part.gradients}, {part.slots[0]}, {part.slots[1]}, {},
                      {step_tensor}, learning_rate, options_.beta1, options_.beta2,
                      decayed ? options_.weight_decay : 0.0, options_.epsilon, /*amsgrad=*/false,
                      /*maximize=*/false);
  });
}

}  // namespace strata
