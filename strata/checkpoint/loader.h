/// Loads a checkpoint on any mesh, independent of the mesh that saved it: a rank reads only the
/// bytes of its own parts.
///
/// Errors  UserError: what CheckpointReader refuses; a checkpoint of another model, with a weight
///         and both its shapes.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "strata/checkpoint/model_description.h"
#include "strata/checkpoint/named_state.h"
#include "strata/checkpoint/saver.h"
#include "strata/models/decoder_options.h"

namespace strata {

class CheckpointReader;

/// Reads a checkpoint part by part, for a rank that cannot hold all of its states at once.
class StateLoader {
 public:
  /// `path`: a checkpoint, or a folder with several (the latest); with kWeights also any Hugging
  /// Face folder or GGUF file. `what`: what its model must have in common with `model`.
  StateLoader(const std::string& path, const CheckpointModel& model, SameModel what);
  ~StateLoader();

  TrainingPosition position() const;
  void read_weights(const std::vector<NamedState>& weights) const;
  void read_slots(const std::vector<NamedState>& slots) const;

 private:
  CheckpointModel model_;
  std::unique_ptr<const CheckpointReader> checkpoint_;
};

/// Reads this rank's parts (owned and replicated) from the checkpoint at `path`, or the latest of
/// the folder, which must be of the same model; returns its position.
TrainingPosition load_states(const std::string& path, const CheckpointModel& model,
                             const std::vector<NamedState>& weights,
                             const std::vector<NamedState>& slots);

/// Reads only weights, from a checkpoint, a folder of checkpoints, or another program's model (a
/// Hugging Face folder with config.json and safetensors of fp32, bf16 or fp16; a GGUF file), of a
/// model with the same weights.
void load_weights(const std::string& path, const CheckpointModel& model,
                  const std::vector<NamedState>& weights);

/// The model of the weights at `path`: a checkpoint, a folder of checkpoints or another program's
/// model.
DecoderOptions model_options_of(const std::string& path);

/// The position of the checkpoint at `path`, for a run of `model` that resumes from it; the start
/// for an empty path.
TrainingPosition position_at(const std::string& path, const CheckpointModel& model);

/// Refuses to train from `steps_done` on if the folder holds later steps of another run: the newest
/// checkpoint would not belong to this run.
void require_no_later_checkpoint(const std::string& folder, std::int64_t steps_done);

}  // namespace strata
