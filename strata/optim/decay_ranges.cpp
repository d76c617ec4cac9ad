#include "strata/optim/decay_ranges.h"

#include "strata/base/errors.h"
#include "strata/nn/layout.h"

namespace strata {
namespace {

UpdateRange narrow(const UpdateRange& range, std::int64_t begin, std::int64_t end) {
  const auto cut = [&](const at::Tensor& flat) { return flat.narrow(0, begin, end - begin); };
  UpdateRange part{.weights = cut(range.weights), .gradients = cut(range.gradients)};
  for (const at::Tensor& slot : range.slots) part.slots.push_back(cut(slot));
  return part;
}

}  // namespace

void for_each_decay_range(
    const UpdateRange& range, std::size_t num_slots,
    const std::function<void(const UpdateRange& part, bool decayed)>& update) {
  const std::int64_t numel = range.weights.numel();
  STRATA_CHECK_EQ(range.gradients.numel(), numel, "optim.update");
  STRATA_CHECK_EQ(range.slots.size(), num_slots, "optim.update");
  for (const at::Tensor& slot : range.slots) STRATA_CHECK_EQ(slot.numel(), numel, "optim.update");
  STRATA_CHECK(range.decay_numel >= 0 && range.decay_numel <= numel, "optim.update");
  STRATA_CHECK_EQ(range.decay_numel % kWeightAlignment, 0, "optim.update");

  if (range.decay_numel > 0) update(narrow(range, 0, range.decay_numel), true);
  if (range.decay_numel < numel) update(narrow(range, range.decay_numel, numel), false);
}

}  // namespace strata
