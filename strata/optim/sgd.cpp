#include "strata/optim/sgd.h"

#include <ATen/ops/_fused_sgd.h>

#include "strata/optim/decay_ranges.h"

namespace strata {

std::vector<std::string> Sgd::slot_names() const {
  if (options_.momentum == 0) return {};
  return {"momentum_buffer"};
}

void Sgd::update(const UpdateRange& range, std::int64_t /*step*/, double learning_rate) const {
  for_each_decay_range(range, slot_names().size(), [&](const UpdateRange& part, bool decayed) {
    // Slots start at zero, so a first step is like any other, also after a resume.
    at::_fused_sgd_({part.weights}, {part.gradients}, part.slots,
                    decayed ? options_.weight_decay : 0.0, options_.momentum, learning_rate,
                    /*dampening=*/0.0, /*nesterov=*/false, /*maximize=*/false,
                    /*is_first_step=*/false);
  });
}

}  // namespace strata
