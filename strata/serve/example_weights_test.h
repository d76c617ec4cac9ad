/// Draws weights for decoders under test: random values also of norms and biases, because their
/// first values would hide errors; keyed by the names in checkpoints, so that ranks and tied
/// weights agree.
#pragma once

#include <ATen/ops/empty.h>

#include <string>
#include <vector>

#include "strata/device/account.h"
#include "strata/nn/graph/initialise.h"
#include "strata/serve/decoder.h"

namespace strata {

inline at::Tensor example_weight(const std::string& name, const std::vector<std::int64_t>& shape,
                                 double deviation = 0.3) {
  at::Tensor weight = at::empty(shape, host_options(at::kFloat));
  initialise(weight, {.name = name, .shape = shape, .init = {Init::Kind::kNormal, deviation}}, "",
             5);
  return weight;
}

inline void read_examples(const std::vector<NamedState>& weights, double deviation = 0.3) {
  const UnchargedScope uncharged;  // a loader reads parts
  for (const NamedState& weight : weights) {
    const at::Tensor whole = example_weight(weight.name, weight.shape, deviation).view({-1});
    for (const Run& run : weight.runs)
      weight.local.narrow(0, run.local, run.numel).copy_(whole.narrow(0, run.global, run.numel));
  }
}

inline void fill_with_examples(Decoder& decoder, double deviation = 0.3) {
  decoder.fill([&](const std::vector<NamedState>& weights) { read_examples(weights, deviation); });
}

}  // namespace strata
