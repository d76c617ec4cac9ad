#include "strata/cli/served_recipe.h"

#include <algorithm>
#include <thread>

#include "strata/base/errors.h"
#include "strata/checkpoint/reader.h"
#include "strata/run/recipe_file.h"
#include "strata/task/text/text_task.h"

namespace strata {
namespace {

int threads_of(const Recipe& recipe, const Mesh& mesh) {
  if (recipe.mesh.threads > 0) return static_cast<int>(recipe.mesh.threads);
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  return std::max(1, cores / mesh.size());
}

// A checkpoint of a language model is served as one, even if an override names another task.
TextTask& text_to_serve(Task& task) {
  if (auto* text = dynamic_cast<TextTask*>(&task)) return *text;
  throw UserError({.operation = "cli.generate",
                   .where = "--set",
                   .what = "only a model of text continues a prompt",
                   .expected = "task text",
                   .got = task.title(),
                   .fix = "leave out the override of task or model.kind"});
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

ServedModel served_model(const Recipe& recipe, const std::string& checkpoint) {
  Mesh mesh = recipe.mesh.axes;
  mesh[Axis::kData] = 1;  // other replicas would only repeat the work
  return {.model = text_task(recipe)->model_options(),
          .tokenizer = recipe.task->tokenizer(),
          .checkpoint = checkpoint,
          .mesh = mesh,
          .threads_per_rank = threads_of(recipe, mesh),
          .device = recipe.rank_device(),
          .device_bytes = recipe.memory.device.count,
          .fingerprint = recipe.text};
}

}  // namespace strata
