#include "strata/nn/graph/weight_name.h"

#include "strata/base/errors.h"

namespace strata {

const Tie& tie_of(const Sequential& model, const WeightSpec& spec) {
  for (const Tie& tie : model.dataflow().ties)
    if (tie.name == spec.tie) return tie;
  throw InternalError(
      {.operation = "nn.weight_name", .what = "a tie without owner", .got = spec.tie});
}

std::string weight_name(const Sequential& model, int layer, const WeightSpec& spec) {
  if (spec.tie.empty()) return model.name(layer) + "." + spec.name;
  const int owner = tie_of(model, spec).owner;
  for (const WeightSpec& owned : model.layout(owner).specs)
    if (owned.tie == spec.tie) return model.name(owner) + "." + owned.name;
  throw InternalError(
      {.operation = "nn.weight_name", .what = "a tie without weight", .got = spec.tie});
}

}  // namespace strata
