#include "strata/checkpoint/named_state.h"

#include <ATen/ops/zeros.h>

#include <functional>
#include <numeric>

#include "strata/base/errors.h"
#include "strata/device/device.h"

namespace strata {

std::int64_t NamedState::numel() const {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

at::Tensor NamedState::tensor() const {
  const bool whole = runs.size() == 1 && runs[0].global == 0 && runs[0].numel == numel();
  if (!whole) {
    throw InternalError({.operation = "checkpoint.named_state",
                         .where = name,
                         .what = "this rank holds only a part of the state",
                         .expected = "one run of " + std::to_string(numel()) + " elements",
                         .got = std::to_string(runs.size()) + " runs",
                         .fix = ""});
  }
  return local.narrow(0, runs[0].local, numel()).view(shape);
}

void assemble(const std::vector<NamedState>& states, std::map<std::string, at::Tensor>& whole) {
  for (const NamedState& state : states) {
    const auto [entry, fresh] = whole.try_emplace(state.name);
    if (fresh) entry->second = at::zeros(state.shape, host_options(at::kFloat));
    const at::Tensor flat = entry->second.view(-1);
    for (const Run& run : state.runs)
      flat.narrow(0, run.global, run.numel).copy_(state.local.narrow(0, run.local, run.numel));
  }
}

}  // namespace strata
