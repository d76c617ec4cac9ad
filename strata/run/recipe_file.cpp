#include "strata/run/recipe_file.h"

#include <algorithm>
#include <fstream>
#include <iostream>
#include <span>

#include "strata/base/errors.h"
#include "strata/base/option_changes.h"
#include "strata/base/units.h"
#include "strata/plan/search/mesh_check.h"
#include "strata/plan/search/tier_choice.h"
#include "strata/run/outer_check.h"
#include "strata/run/sign_check.h"
#include "strata/run/traffic_check.h"
#include "strata/task/kinds/kinds.h"

namespace strata {
namespace {

// A plan holds a forward and a backward of every stage and micro-batch in memory, and counts the
// bytes of every layer in each.
constexpr std::int64_t kMostMicroBatches = 1 << 16;
constexpr std::int64_t kMostLayerRuns = 1 << 24;

// Describes the task's fields and the shared ones.
void describe(OptionSet& set, std::string& kind, Recipe& recipe, Task& task) {
  std::vector<std::string> names;
  for (const TaskKind& each : task_kinds()) names.push_back(each.name);
  set.add("task", &kind,
          {.help = "What the run learns; without it model.kind says so.", .choices = names});
  task.describe(set);
  describe_shared(set, recipe);
}

struct Described {
  Recipe recipe;
  std::unique_ptr<Task> task;
  std::string kind;
  OptionSet set;

  explicit Described(const TaskKind& of, const RecipeDefaults& defaults = nullptr)
      : task(of.make()), kind(of.name) {
    task->set_defaults(recipe);
    if (defaults) defaults(recipe, *task);
    describe(set, kind, recipe, *task);
  }
};

// Names another task that has a field or section that this one lacks.
std::string other_task_with(const std::string& path, const TaskKind& task) {
  for (const TaskKind& kind : task_kinds()) {
    if (kind.name == task.name) continue;
    for (const std::string& field : Described(kind).set.paths())
      if (field == path || field.starts_with(path + ".") || path.starts_with(field + "["))
        return ": task " + kind.name + " has it, and the recipe's task is " + task.name;
  }
  return "";
}

struct RecipeFields {
  const OptionSet& options;
  const std::string& recipe;  // name of the recipe

  // A field that is not in the recipe has no place of its own; a feature's field gets the place of
  // the feature's name.
  std::string where(const std::string& path) const {
    if (options.is_set(path)) return options.where(path);
    const std::size_t end = path.find("].");
    if (end == std::string::npos) return recipe;
    const std::string name = path.substr(0, end + 2) + "name";
    return name != path && options.is_set(name) ? options.where(name) : recipe;
  }
};

// Throws UserError unless `holds`, with the place of `path`.
void require(bool holds, const RecipeFields& fields, const std::string& path,
             const std::string& what, const std::string& expected, const std::string& got,
             const std::string& fix) {
  if (holds) return;
  throw UserError({.operation = "run.recipe",
                   .where = fields.where(path),
                   .what = path + ": " + what,
                   .expected = expected,
                   .got = got,
                   .fix = fix});
}

// OptionSet refuses longer recipes, so no more is read of a device or a model's file.
constexpr std::size_t kLongestRecipe = std::size_t{1} << 21;

std::string beginning_of(std::istream& stream) {
  std::string text(kLongestRecipe + 1, '\0');
  stream.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(stream.gcount()));
  return text;
}

std::string text(std::int64_t number) { return std::to_string(number); }

void check(const Recipe& r, const RecipeFields& fields) {
  require(r.train.micro_batch <= r.train.mini_batch, fields, "train.micro_batch",
          "larger than the mini-batch", "at most " + text(r.train.mini_batch),
          text(r.train.micro_batch), "set train.micro_batch=" + text(r.train.mini_batch));
  const auto where = [&](const std::string& field) {
    return field == "mesh" ? fields.recipe : fields.where(field);
  };
  r.task->check(r, where);
  const MeshLimits limits = r.task->mesh_limits(r);
  const std::int64_t layers = limits.layers;
  // An open micro-batch is checked when it has been decided.
  const std::int64_t samples = r.train.micro_batch == 0 ? r.train.mini_batch : r.train.micro_batch;
  const std::int64_t micro_batches = (r.train.mini_batch + samples - 1) / samples;
  const std::int64_t most = std::clamp<std::int64_t>(kMostLayerRuns / layers, 1, kMostMicroBatches);
  require(micro_batches <= most, fields, "train.micro_batch", "too many micro-batches to plan",
          "at most " + text(most) + " of " + text(layers) + " layers", text(micro_batches),
          "set train.micro_batch to " + text((r.train.mini_batch + most - 1) / most) + " or more");
  const OptimizerOptions& o = r.optimizer;
  require(o.min_coeff <= o.max_coeff, fields, "train.optimizer.min_coeff",
          "more than train.optimizer.max_coeff", "at most " + format_double_exactly(o.max_coeff),
          format_double_exactly(o.min_coeff),
          "set train.optimizer.min_coeff=" + format_double_exactly(o.max_coeff));
  require(r.train.checkpoint_every == 0 || !r.train.checkpoint_folder.empty(), fields,
          "train.checkpoint_every", "nowhere to save to", "a folder in train.checkpoint_folder",
          "none", "set train.checkpoint_folder");
  if (!r.train.target.empty()) {
    QualityTarget::parse(r.train.target, r.task->validation_metrics(), where("train.target"));
    require(r.train.validate_every > 0, fields, "train.target", "no validation looks for it",
            "steps between validations in train.validate_every", "0",
            "set train.validate_every to the steps between validations");
  }
  if (r.mesh.automatic) {  // its axes give the number of ranks
    require(r.mesh.schedule != ScheduleKind::kFile && r.mesh.schedule_file.empty(), fields,
            "mesh.schedule_file", "mesh.auto chooses the schedule", "no file", r.mesh.schedule_file,
            "set mesh.auto=false");
    check_mesh({.axes = r.mesh.axes}, {}, where);
  } else {
    check_mesh(r.mesh, limits, where);
  }
  check_memory(r.memory, r.mesh, where);
  if (!r.mesh.automatic) check_signs(r, where);
  check_outer(r, where);
  check_traffic(r, where);
}

}  // namespace

std::optional<QualityTarget> target_of(const Recipe& recipe) {
  if (recipe.train.target.empty()) return std::nullopt;
  return QualityTarget::parse(recipe.train.target, recipe.task->validation_metrics());
}

Recipe parse_recipe(const std::string& text, const std::string& name,
                    const std::vector<std::string>& overrides, const RecipeDefaults& defaults) {
  const TaskKind& kind = task_kind_of(text, name, overrides);
  Described described(kind, defaults);
  OptionSet& set = described.set;
  set.explain_unknown([&](const std::string& path) { return other_task_with(path, kind); });
  set.load_yaml(text, name);
  for (const std::string& assignment : overrides) set.set(assignment);
  Recipe& recipe = described.recipe;
  described.task->complete(recipe, set);
  if (recipe.train.micro_batch == 0) recipe.train.micro_batch = recipe.train.resumed_micro_batch;
  recipe.text = set.to_yaml();
  recipe.task = std::move(described.task);
  check(recipe, {set, name});
  return std::move(recipe);
}

Recipe load_recipe(const std::string& path, const std::vector<std::string>& overrides,
                   const RecipeDefaults& defaults) {
  if (path == "-")
    return parse_recipe(beginning_of(std::cin), "standard input", overrides, defaults);
  std::ifstream file(path);
  const std::string text = beginning_of(file);
  if (!file.is_open() || file.bad()) {
    throw UserError({.operation = "run.recipe",
                     .where = path,
                     .what = "the recipe cannot be read",
                     .expected = "a YAML file",
                     .got = "no readable file",
                     .fix = "name an existing recipe, such as recipes/gpt-10m.yaml"});
  }
  return parse_recipe(text, path, overrides, defaults);
}

std::string warmup_advice(const Recipe& recipe) {
  const std::int64_t warmup = recipe.train.warmup, steps = recipe.train.steps;
  if (warmup <= steps) return "";
  const double share = static_cast<double>(steps) / static_cast<double>(warmup);
  return "rises to " + format_double(100 * share, 1) +
         " % of train.optimizer.learning_rate: train.warmup " + text(warmup) +
         " is longer than the run";
}

OptimizerOptions stored_optimizer(const std::string& recipe) {
  OptimizerOptions options;
  OptionSet set;
  describe(set, "train.optimizer", options);
  for (const OptionChange& change : changed_options(recipe, set.to_yaml()))
    set.set(change.path + "=" + change.before);
  return options;
}

OuterOptions stored_outer(const std::string& recipe) {
  OuterOptions options;
  OptionSet set;
  describe(set, "train.outer_steps", options);
  for (const OptionChange& change : changed_options(recipe, set.to_yaml()))
    set.set(change.path + "=" + change.before);
  return options;
}

std::int64_t stored_micro_batch(const std::string& recipe) {
  TrainOptions options;
  options.micro_batch = 0;
  OptionSet set;
  set.add("train.micro_batch", &options.micro_batch, {.minimum = 0});
  for (const OptionChange& change : changed_options(recipe, set.to_yaml()))
    set.set(change.path + "=" + change.before);
  return options.micro_batch;
}

Recipe with_micro_batch(Recipe recipe, std::int64_t samples) {
  recipe.text = parse_recipe(recipe.text, "recipe", {"train.micro_batch=" + text(samples)}).text;
  recipe.train.micro_batch = samples;
  return recipe;
}

std::vector<std::string> recipe_fields() {
  std::vector<std::string> fields;
  for (const TaskKind& kind : task_kinds())
    for (std::string& path : Described(kind).set.paths())
      if (std::ranges::find(fields, path) == fields.end()) fields.push_back(std::move(path));
  return fields;
}

std::string recipe_options_table(const std::string& task) {
  if (!task.empty()) return Described(task_kind(task, "options")).set.to_table();
  Described first(task_kinds().front());
  OptionSet shared;
  describe_shared(shared, first.recipe);
  std::string table = first.set.to_table();
  for (const TaskKind& kind : std::span(task_kinds()).subspan(1)) {
    OptionSet own;
    Described other(kind);
    other.task->describe(own);
    describe_shared(own, other.recipe);
    table += "\n" + kind.title + "\n\n" + own.to_table(&shared);
  }
  return table;
}

}  // namespace strata
