/// Brings a trainer to where a checkpoint is, whatever mesh wrote it. Collective.
#pragma once

#include <string>

#include "strata/checkpoint/loader.h"
#include "strata/train/trainer.h"

namespace strata {

/// Weights, optimizer states and step count; returns where the run is. `model`: what the trainer was
/// made for; the checkpoint must be of the same. `path`: a checkpoint or the folder that holds several.
TrainingPosition load_trainer(Trainer& trainer, const DecoderOptions& model,
                              const std::string& path);

/// Weights only, also of any Hugging Face folder.
void load_weights(Trainer& trainer, const DecoderOptions& model, const std::string& path);

}  // namespace strata
