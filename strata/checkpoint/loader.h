/// Loads what one mesh saved under any other: a rank reads the bytes of its own parts and no others.
///
/// Errors  UserError: what CheckpointReader refuses; a checkpoint of another model, with a weight
///         and both its shapes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "strata/checkpoint/named_state.h"
#include "strata/checkpoint/saver.h"
#include "strata/models/decoder_options.h"

namespace strata {

/// Reads this rank's parts (replicas and everything else that it needs) from the checkpoint at
/// `path`, or the latest of the folder, which must be of the same model; returns where it is.
TrainingPosition load_states(const std::string& path, const DecoderOptions& model,
                             const std::vector<NamedState>& weights,
                             const std::vector<NamedState>& slots);

/// Weights only, from a checkpoint, a folder of checkpoints, or any Hugging Face folder
/// (config.json and safetensors of fp32, bf16 or fp16), of a model with the same weights.
void load_weights(const std::string& path, const DecoderOptions& model,
                  const std::vector<NamedState>& weights);

/// The model whose weights `path` holds: a checkpoint, a folder of them or a Hugging Face folder.
DecoderOptions model_options_of(const std::string& path);

/// Where the checkpoint at `path` is, for a run of `model` that goes on from it; the beginning for
/// an empty path.
TrainingPosition position_at(const std::string& path, const DecoderOptions& model);

/// Refuses to train from `steps_done` on where the folder holds later steps of another run: the
/// newest would not be this run's.
void require_no_later_checkpoint(const std::string& folder, std::int64_t steps_done);

}  // namespace strata
