/// Makes the model that a recipe trains, whatever its kind, and says what it reads.
///
/// Errors  UserError: what the makers of models refuse.
#pragma once

#include <string>
#include <vector>

#include "strata/checkpoint/model_description.h"
#include "strata/nn/sequential.h"
#include "strata/train/recipe.h"

namespace strata {

Sequential training_model(const Recipe& recipe, TensorSplit split = {});

/// Its batch inputs with so many samples.
std::vector<TensorSpec> batch_specs(const Recipe& recipe, std::int64_t samples);

/// What counts of a sample: the tokens of a text, one label.
std::int64_t sample_tokens(const Recipe& recipe);

CheckpointModel checkpoint_model(const Recipe& recipe);

std::string model_title(const Recipe& recipe);  ///< "Llama", "DLRM"

}  // namespace strata
