/// Brings a trainer to where a checkpoint is, whatever mesh wrote it. Collective.
#pragma once

#include <string>

#include "strata/train/trainer.h"

namespace strata {

/// Weights, optimizer states and step count. `path`: a checkpoint or the folder that holds several.
void load_trainer(Trainer& trainer, const std::string& path);

/// Weights only, also of any Hugging Face folder.
void load_weights(Trainer& trainer, const std::string& path);

}  // namespace strata
