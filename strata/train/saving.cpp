#include "strata/train/saving.h"

#include <nlohmann/json.hpp>

#include "strata/base/errors.h"
#include "strata/train/checkpoint.h"

namespace strata {
namespace {

std::vector<NamedTensor> as_tensors(const std::vector<NamedState>& states) {
  std::vector<NamedTensor> tensors;
  for (const NamedState& state : states) tensors.push_back({state.name, state.tensor});
  return tensors;
}

void read(const CheckpointReader& checkpoint, const std::vector<NamedState>& states) {
  for (const NamedState& state : states) checkpoint.read_into(state.name, state.tensor);
}

// What other programs need to know of the model, in the words of GPT-2's configuration.
std::string config_json(const GptOptions& model) {
  return nlohmann::json{{"model_type", "strata-gpt"},      {"n_layer", model.layers},
                        {"n_embd", model.width},           {"n_head", model.heads},
                        {"vocab_size", model.vocab},       {"n_positions", model.context},
                        {"resid_pdrop", model.dropout},    {"embd_pdrop", model.dropout},
                        {"tie_word_embeddings", model.tie}}
      .dump(1);
}

}  // namespace

std::string save_trainer(Trainer& trainer, const Recipe& recipe, Group& group,
                         int threads_per_rank) {
  const std::string& folder = recipe.train.checkpoint_folder;
  const CheckpointWriter writer(folder, trainer.steps_done(), group.size());
  if (group.rank() == 0) writer.prepare();
  group.barrier();
  writer.write_shard(group.rank(), as_tensors(trainer.weights()), as_tensors(trainer.slots()));
  group.barrier();
  if (group.rank() > 0) return "";
  const std::string complete =
      writer.commit({.samples_seen = trainer.steps_done() * recipe.train.mini_batch,
                     .threads_per_rank = threads_per_rank,
                     .strata_version = STRATA_VERSION,
                     .recipe = recipe.text},
                    config_json(recipe.model));
  prune_checkpoints(folder, recipe.train.keep_checkpoints);
  return complete;
}

void load_trainer(Trainer& trainer, const std::string& path) {
  const CheckpointReader checkpoint = CheckpointReader::open(path);
  read(checkpoint, trainer.weights());
  read(checkpoint, trainer.replicas());
  read(checkpoint, trainer.slots());
  trainer.set_steps_done(checkpoint.manifest().step);
}

void load_weights(Trainer& trainer, const std::string& path) {
  const CheckpointReader checkpoint = CheckpointReader::open(path);
  read(checkpoint, trainer.weights());
  read(checkpoint, trainer.replicas());
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
