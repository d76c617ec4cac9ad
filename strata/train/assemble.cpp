#include "strata/train/assemble.h"

#include <ATen/ops/zeros.h>

namespace strata {

void assemble(const std::vector<NamedState>& states, std::map<std::string, at::Tensor>& whole) {
  for (const NamedState& state : states) {
    const auto [entry, fresh] = whole.try_emplace(state.name);
    if (fresh) entry->second = at::zeros(state.shape);
    const at::Tensor flat = entry->second.view(-1);
    for (const Run& run : state.runs)
      flat.narrow(0, run.global, run.numel).copy_(state.local.narrow(0, run.local, run.numel));
  }
}

}  // namespace strata
