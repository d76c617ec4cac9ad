/// Names the weights of a model as checkpoints do.
///
/// Errors  InternalError: a tied weight whose owner is not in the model.
#pragma once

#include <string>

#include "strata/nn/graph/sequential.h"

namespace strata {

/// The tie of a weight that has one.
const Tie& tie_of(const Sequential& model, const WeightSpec& spec);

/// "block3.mlp.up.weight"; a tied weight has its owner's name.
std::string weight_name(const Sequential& model, int layer, const WeightSpec& spec);

}  // namespace strata
