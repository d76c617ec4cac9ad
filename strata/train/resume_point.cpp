#include "strata/train/resume_point.h"

#include <algorithm>

#include "strata/base/errors.h"
#include "strata/base/json_text.h"
#include "strata/checkpoint/reader.h"
#include "strata/optim/optimizer.h"
#include "strata/train/disk_commit.h"
#include "strata/train/same_features.h"

namespace strata {
namespace {

constexpr const char* kOptimizer = "train.optimizer";

using Changes = std::vector<OptionChange>;

// What lies beside each weight, in ascending order, where these fields are as they were before.
std::vector<std::string> slots_before(OptimizerOptions options, const Changes& changes) {
  OptionSet set;
  describe(set, kOptimizer, options);
  for (const OptionChange& change : changes) set.set(change.path + "=" + change.before);
  std::vector<std::string> slots = make_optimizer(options)->slot_names();
  std::ranges::sort(slots);
  return slots;
}

void require_states(const OptimizerOptions& now, Changes changes, const std::string& resume) {
  std::erase_if(changes, [](const OptionChange& c) { return !c.path.starts_with(kOptimizer); });
  const std::vector<std::string> there = slots_before(now, changes);
  const auto suffices = [&](const Changes& undone) {
    return std::ranges::includes(there, slots_before(now, undone));
  };
  if (suffices({})) return;
  // One alone makes the difference: the kind, or with sgd whether there is a momentum.
  const auto change =
      std::ranges::find_if(changes, [&](const OptionChange& c) { return suffices({c}); });
  const OptionChange& named = change == changes.end() ? changes.front() : *change;
  const std::string before = named.path + "=" + named.before;
  throw UserError({.operation = "train.resume",
                   .where = resume,
                   .what = "another optimizer's states lie there",
                   .expected = before,
                   .got = named.path + "=" + named.now,
                   .fix = "set " + before + ", or begin anew with these weights: --from " + resume +
                          " without --resume"});
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
    point.steps_done = position_of(recipe, resume).steps_done;
    const CheckpointReader checkpoint = CheckpointReader::open(resume);
    point.folder = checkpoint.folder();
    before = checkpoint.manifest().recipe;
  }
  point.changes = changed_options(before, through_json(recipe.text));  // as `before` was kept
  require_states(recipe.optimizer, point.changes, resume);
  return point;
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
