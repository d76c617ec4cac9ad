#include "strata/base/errors.h"
#include "strata/models/hugging_face.h"
#include "strata/train/checkpoint.h"
#include "strata/train/named_state.h"
#include "strata/train/saving.h"

namespace strata {
namespace {

void read_weights(const CheckpointReader& reader, const DecoderOptions& model,
                  const std::vector<NamedState>& weights) {
  for (const NamedState& weight : weights) reader.read_runs(weight, file_tensors(&model, weight));
}

DecoderOptions model_of(const CheckpointReader& checkpoint) {
  return parse_recipe(checkpoint.manifest().recipe, checkpoint.folder(), {}).model;
}

}  // namespace

std::int64_t load_states(const std::string& path, const std::vector<NamedState>& weights,
                         const std::vector<NamedState>& slots) {
  const CheckpointReader checkpoint = CheckpointReader::open(path);
  read_weights(checkpoint, model_of(checkpoint), weights);
  for (const NamedState& slot : slots) checkpoint.read_runs(slot, file_tensors(nullptr, slot));
  return checkpoint.manifest().step;
}

void load_weights(const std::string& path, const std::vector<NamedState>& weights) {
  if (is_pretrained(path)) {
    const DecoderOptions model = model_options_of(path);
    return read_weights(CheckpointReader::open_pretrained(path), model, weights);
  }
  const CheckpointReader checkpoint = CheckpointReader::open(path);
  read_weights(checkpoint, model_of(checkpoint), weights);
}

DecoderOptions model_options_of(const std::string& path) {
  if (!is_pretrained(path)) return model_of(CheckpointReader::open(path));
  const CheckpointReader folder = CheckpointReader::open_pretrained(path);
  return read_hugging_face_config(folder.config_json(), folder.folder() + "/config.json");
}

void require_no_later_checkpoint(const Recipe& recipe, std::int64_t steps_done) {
  const std::string& folder = recipe.train.checkpoint_folder;
  const std::vector<std::string> checkpoints =
      folder.empty() ? std::vector<std::string>() : list_checkpoints(folder);
  if (checkpoints.empty() || steps_done_at(checkpoints.back()) <= steps_done) return;
  throw UserError(
      {.operation = "train.checkpoint",
       .where = folder,
       .what = "the folder holds later steps of another run",
       .expected = "none after step " + std::to_string(steps_done),
       .got = checkpoints.back(),
       .fix = "pass --resume " + folder + ", or set train.checkpoint_folder to a new one"});
}

std::int64_t steps_done_at(const std::string& path) {
  return path.empty() ? 0 : CheckpointReader::open(path).manifest().step;
}

}  // namespace strata
