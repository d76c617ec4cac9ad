#include "strata/run/resume_point.h"

#include <algorithm>
#include <filesystem>
#include <optional>

#include "strata/base/errors.h"
#include "strata/base/json_text.h"
#include "strata/checkpoint/loader.h"
#include "strata/checkpoint/model_description.h"
#include "strata/checkpoint/reader.h"
#include "strata/optim/optimizer.h"
#include "strata/run/plan_request.h"
#include "strata/run/recipe_file.h"
#include "strata/schedule/builders.h"
#include "strata/task/task.h"
#include "strata/train/disk_commit.h"

namespace strata {
namespace {

constexpr const char* kOptimizer = "train.optimizer";

using Changes = std::vector<OptionChange>;

// The options if these changes are undone.
OptimizerOptions options_before(OptimizerOptions options, const Changes& changes) {
  OptionSet set;
  describe(set, kOptimizer, options);
  for (const OptionChange& change : changes) set.set(change.path + "=" + change.before);
  return options;
}

// The names of each weight's states then, in ascending order.
std::vector<std::string> slots_before(const OptimizerOptions& options, const Changes& changes) {
  std::vector<std::string> slots = make_optimizer(options_before(options, changes))->slot_names();
  std::ranges::sort(slots);
  return slots;
}

Changes of_optimizer(Changes changes) {
  std::erase_if(changes, [](const OptionChange& c) { return !c.path.starts_with(kOptimizer); });
  return changes;
}

void require_states(const OptimizerOptions& now, const Changes& changes,
                    const std::string& resume) {
  const std::vector<std::string> there = slots_before(now, changes);
  const auto suffices = [&](const Changes& undone) {
    return std::ranges::includes(there, slots_before(now, undone));
  };
  if (suffices({})) return;
  // A single change may be the cause: the kind, or with sgd whether there is a momentum.
  const auto change =
      std::ranges::find_if(changes, [&](const OptionChange& c) { return suffices({c}); });
  const OptionChange& named = change == changes.end() ? changes.front() : *change;
  const std::string before = named.path + "=" + named.before;
  throw UserError({.operation = "run.resume",
                   .where = resume,
                   .what = "another optimizer's states lie there",
                   .expected = before,
                   .got = named.path + "=" + named.now,
                   .fix = "set " + before + ", or begin anew with these weights: --from " + resume +
                          " without --resume"});
}

// Its variances were refreshed in some of the updates, and inside a round the replicas' weights
// differ.
void require_zero_one_goes_on(const OptimizerOptions& now, const Changes& changes,
                              const std::string& resume) {
  const OptimizerKind before = options_before(now, changes).kind;
  if (before != OptimizerKind::kZeroOneAdam || now.kind == before) return;
  const std::string field = std::string(kOptimizer) + ".kind=";
  throw UserError({.operation = "run.resume",
                   .where = resume,
                   .what = "no other optimizer can go on with the states of 0/1 Adam",
                   .expected = field + name_of(before),
                   .got = field + name_of(now.kind),
                   .fix = "set " + field + name_of(before) +
                          ", or begin anew with these weights: "
                          "--from " +
                          resume + " without --resume"});
}

// They say how often the variances were refreshed, and whether replicas are inside a round.
void require_same_intervals(const OptimizerOptions& now, const Changes& changes,
                            const std::string& resume) {
  if (options_before(now, changes).kind != now.kind) return;  // which has no such states
  for (const char* name : {".freeze_step", ".refresh_doubling", ".local_doubling", ".local_most"}) {
    const std::string field = kOptimizer + std::string(name);
    const auto change = std::ranges::find(changes, field, &OptionChange::path);
    if (change == changes.end()) continue;
    throw UserError({.operation = "run.resume",
                     .where = resume,
                     .what = "the checkpoint has another schedule of what replicas exchange",
                     .expected = field + "=" + change->before,
                     .got = field + "=" + change->now,
                     .fix = "set " + field + "=" + change->before});
  }
}

// The variances stay as they were at that step, and its number corrects them.
void require_same_freeze_step(const OptimizerOptions& now, const Changes& changes,
                              std::int64_t steps_done, const std::string& resume) {
  if (now.kind == OptimizerKind::kZeroOneAdam) return require_same_intervals(now, changes, resume);
  if (!freezes_variances(now.kind)) return;
  const std::int64_t before = options_before(now, changes).freeze_step;
  if (before == now.freeze_step || steps_done <= std::min(before, now.freeze_step)) return;
  const std::string field = std::string(kOptimizer) + ".freeze_step=";
  throw UserError({.operation = "run.resume",
                   .where = resume,
                   .what = "the checkpoint is past the old or the new freeze step",
                   .expected = field + std::to_string(before),
                   .got = field + std::to_string(now.freeze_step),
                   .fix = "set " + field + std::to_string(before)});
}

// Inside a round the replicas' weights differ, which the new rounds must know.
void require_same_round(const OuterOptions& now, const Changes& changes, std::int64_t steps_done,
                        const std::string& resume) {
  OuterOptions before = now;
  OptionSet set;
  describe(set, "train.outer_steps", before);
  for (const OptionChange& change : changes)
    if (change.path.starts_with("train.outer_steps.")) set.set(change.path + "=" + change.before);
  if (!before.is_on() || !now.is_on() || before.ends_round(steps_done) ||
      !now.ends_round(steps_done))
    return;
  const std::string field = "train.outer_steps.every=";
  throw UserError({.operation = "run.resume",
                   .where = resume,
                   .what = "the checkpoint lies inside a round of outer steps",
                   .expected = field + std::to_string(before.every) +
                               ", or another number that does not divide " +
                               std::to_string(steps_done),
                   .got = field + std::to_string(now.every),
                   .fix = "set " + field + std::to_string(before.every)});
}

// Where the schedule places stages, if not one after another.
std::string placement_text(const MeshOptions& mesh) {
  const bool read = mesh.schedule == ScheduleKind::kFile;
  if (!read && !traits_of(mesh.schedule).v_shaped) return "";
  const int ranks = mesh.axes[Axis::kPipeline];
  std::string text = "stages on ranks";
  for (const int rank : read ? read_order_of(mesh)->rank_of_stage
                             : ranks_of_stages(mesh.schedule, ranks,
                                               ranks * static_cast<int>(mesh.stages_per_rank())))
    text += " " + std::to_string(rank);
  return text + ", ";
}

// The fields that determine which rank has which states, and where.
std::string division_text(const Recipe& recipe) {
  const MeshOptions& mesh = recipe.mesh;
  const MemoryOptions& memory = recipe.memory;
  const auto field = [](const char* name, std::int64_t value) {
    return std::string("mesh.") + name + " " + std::to_string(value) + ", ";
  };
  std::string axes;
  for (const AxisInfo& axis : kAxes) axes += field(axis.name, mesh.axes[axis.id]);
  return (mesh.automatic ? "mesh.auto, " : "") + axes + field("zero", mesh.zero.stage) +
         field("shard_ranks", mesh.zero.shard_ranks) +
         field("virtual_stages", mesh.stages_per_rank()) + placement_text(mesh) +
         "memory.weights " + name_of(memory.weights) + ", memory.gradients " +
         name_of(memory.gradients) + ", memory.states " + name_of(memory.states) +
         (recipe.device_kind() == DeviceKind::kCuda ? ", mesh.device cuda" : "");
}

// A run on a disk resumes in the same folder, with the same model and mesh.
void require_resumable(const DiskCommit& commit, const Recipe& recipe, const std::string& path) {
  const auto refuse = [&](const std::string& what, const std::string& expected,
                          const std::string& got, const std::string& fix) {
    throw UserError({"run.resume", path, what, expected, got, fix});
  };
  namespace fs = std::filesystem;
  std::error_code none;
  const std::string& named = recipe.memory.disk.path;
  if (named.empty() || fs::weakly_canonical(path, none) != fs::weakly_canonical(named, none))
    refuse("a run on a disk is resumed where it lies", "memory.disk.path=" + path,
           named.empty() ? "no memory.disk.path" : named, "set memory.disk.path=" + path);
  // Compares the recipes as written, before a mesh was searched.
  const Recipe written = parse_recipe(commit.recipe, path, {});
  const Recipe now = parse_recipe(through_json(recipe.text), "the recipe", {});
  require_same_model(written.task->checkpoint_model(), recipe.task->checkpoint_model(),
                     SameModel::kAll, path);
  const std::string expected = division_text(written), got = division_text(now);
  if (expected != got)
    refuse("the folder holds the state of another mesh or placement", expected, got,
           "set these as they were, or resume from a checkpoint in train.checkpoint_folder, which "
           "fits every mesh");
}

// A recipe of another version may have fields that this version cannot parse.
std::optional<Recipe> readable_recipe(const std::string& text, const std::string& path) {
  try {
    Recipe recipe = parse_recipe(text, path, {});
    recipe.text = text;
    return recipe;
  } catch (const UserError&) {
    return std::nullopt;
  }
}

void require_same_task(const Recipe& recipe, const std::string& before, const std::string& path) {
  const std::string now = through_json(recipe.text);  // normalised like `before`
  if (before == now) return;
  const std::optional<Recipe> trained = readable_recipe(before, path);
  const std::optional<Recipe> read = readable_recipe(now, path);
  if (trained && read) read->task->check_resume(*read, *trained->task, *trained, path);
}

}  // namespace

ResumePoint resume_point(const Recipe& recipe, const std::string& resume) {
  if (resume.empty()) return {};
  ResumePoint point;
  std::string before;
  if (holds_commits(resume)) {
    const DiskCommit commit = last_commit(resume);
    require_resumable(commit, recipe, resume);
    point = {
        .folder = resume, .steps_done = commit.position.steps_done, .decisions = commit.decisions};
    before = commit.recipe;
  } else {
    point.steps_done = resume_position(recipe, resume).steps_done;
    const CheckpointReader checkpoint = CheckpointReader::open(resume);
    point.folder = checkpoint.folder();
    before = checkpoint.manifest().recipe;
  }
  point.changes = changed_options(before, through_json(recipe.text));  // normalised like `before`
  const Changes changes = of_optimizer(point.changes);
  require_zero_one_goes_on(recipe.optimizer, changes, resume);
  require_states(recipe.optimizer, changes, resume);
  require_same_freeze_step(recipe.optimizer, changes, point.steps_done, resume);
  require_same_round(recipe.outer, point.changes, point.steps_done, resume);
  return point;
}

TrainingPosition resume_position(const Recipe& recipe, const std::string& resume) {
  if (resume.empty()) return {};
  if (holds_commits(resume)) return last_commit(resume).position;
  const CheckpointReader checkpoint = CheckpointReader::open(resume);
  if (!checkpoint.is_pretrained())
    require_same_task(recipe, checkpoint.manifest().recipe, checkpoint.folder());
  return position_at(resume, recipe.task->checkpoint_model());
}

void require_resume_point(const Recipe& recipe, const std::string& resume) {
  try {
    resume_point(recipe, resume);
  } catch (const UserError& error) {
    throw SystemError(error.text());
  }
}

std::string text_of(const ResumePoint& point) {
  if (point.folder.empty()) return "";
  std::string text =
      "resumed  step " + std::to_string(point.steps_done) + " of " + point.folder + "\n";
  for (const OptionChange& change : point.changes)
    text += "changed  " + change.path + " " + change.before + " -> " + change.now + "\n";
  return text;
}

}  // namespace strata
