#include "strata/cli/served_recipe.h"

#include <utility>

#include "strata/base/errors.h"
#include "strata/checkpoint/reader.h"
#include "strata/cli/weights_option.h"
#include "strata/nn/primitives/primitive_choice.h"
#include "strata/run/rank_options.h"
#include "strata/run/recipe_file.h"
#include "strata/serve/draft_model.h"
#include "strata/task/text/text_task.h"

namespace strata {
namespace {

UserError not_text(const Task& task) {
  return UserError({.operation = "cli.served_recipe",
                    .where = "task",
                    .what = "only a model of text continues a prompt",
                    .expected = "task text",
                    .got = task.title(),
                    .fix = "name a model of text, and override neither task nor model.kind"});
}

// A checkpoint of a language model is served as one, even if an override names another task.
TextTask& text_to_serve(Task& task) {
  if (auto* text = dynamic_cast<TextTask*>(&task)) return *text;
  throw not_text(task);
}

ServedModel served_on(RanksOptions ranks, const Recipe& recipe, const std::string& checkpoint,
                      WeightType weights) {
  ranks.fingerprint = recipe.text + "\nweights: " + name_of(weights);
  return {.model = text_task(recipe)->model_options(),
          .tokenizer = recipe.task->tokenizer(),
          .checkpoint = checkpoint.empty() ? "" : CheckpointReader::open(checkpoint).folder(),
          .ranks = std::move(ranks),
          .memory = recipe.memory,
          .precision = recipe.train.precision,
          .weights = weights};
}

}  // namespace

// Model and tokenizer come from the checkpoint itself; its recipe adds the mesh. A recipe whose
// options have been renamed since is ignored.
Recipe recipe_of(const std::string& path, const std::vector<std::string>& overrides) {
  const CheckpointReader checkpoint = CheckpointReader::open(path);
  checkpoint.decoder();  // refuses other kinds of models
  Recipe known;
  std::string text = path;  // every recipe for text names a text file
  if (!checkpoint.is_pretrained()) {
    try {
      known = parse_recipe(checkpoint.manifest().recipe, path, {});
      text = known.task->data_source();
    } catch (const UserError&) {
      known = {};
    }
  }
  return parse_recipe("{}", path, overrides, [&](Recipe& defaults, Task& task) {
    defaults = known;
    task.take_model(checkpoint);
    text_to_serve(task).set_text(text);
  });
}

Recipe text_recipe(Recipe recipe) {
  if (!text_task(recipe)) throw not_text(*recipe.task);
  return recipe;
}

ServedModel served_model(Recipe recipe, const std::string& checkpoint, WeightType weights) {
  require_weights(weights, recipe);
  // Other replicas would only repeat the work, and ranks of cp divide samples in training only.
  recipe.mesh.axes[Axis::kData] = recipe.mesh.axes[Axis::kContext] = 1;
  return served_on(ranks_options(recipe), recipe, checkpoint, weights);
}

// The process has one choice of primitives, that of the served model's recipe.
ServedModel draft_model(const std::string& path, const ServedModel& served, WeightType weights) {
  Recipe recipe = recipe_of(path, {});
  const DeviceKind device = served.ranks.device.kind;
  recipe.device = device == DeviceKind::kCuda ? DeviceChoice::kCuda : DeviceChoice::kCpu;
  recipe.memory = {};
  recipe.train.primitives = chosen_primitives(device);
  recipe.train.precision = weights == WeightType::kPrecision ? served.precision : at::kFloat;
  require_weights(weights, recipe, "--draft-weights");
  RanksOptions ranks = served.ranks;
  ranks.mesh = Mesh{};
  ServedModel draft = served_on(std::move(ranks), recipe, path, weights);
  if (tokenizer_kind(draft.tokenizer) == TokenizerKind::kNone) draft.tokenizer = served.tokenizer;
  check_draft(draft, served);
  return draft;
}

}  // namespace strata
