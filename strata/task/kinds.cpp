#include "strata/task/kinds.h"

#include <yaml-cpp/yaml.h>

#include <optional>
#include <utility>

#include "strata/base/errors.h"
#include "strata/base/user_text.h"
#include "strata/task/recommender/recommender_task.h"
#include "strata/task/text/text_task.h"

namespace strata {
namespace {

// All registered kinds of tasks.
std::vector<TaskKind>& kinds() {
  static std::vector<TaskKind> all = {text_task_kind(), recommender_task_kind()};
  return all;
}

const TaskKind& kind_of_model(const std::string& model, const std::string& where) {
  std::vector<std::string> known;
  for (const TaskKind& kind : kinds())
    for (const std::string& each : kind.model_kinds) {
      if (each == model) return kind;
      known.push_back(each);
    }
  check_choice("model.kind", model, known, where);
  return kinds().front();
}

// The value of a field in its last override.
std::optional<std::string> overridden(const std::vector<std::string>& overrides,
                                      const std::string& field) {
  for (auto each = overrides.rbegin(); each != overrides.rend(); ++each)
    if (each->starts_with(field + "=")) return each->substr(field.size() + 1);
  return std::nullopt;
}

struct NamedField {
  std::string value, where;  // both empty: the text has no such field
};

NamedField field_of(const YAML::Node& node, const std::string& file) {
  if (!node.IsDefined() || !node.IsScalar()) return {};
  const YAML::Mark mark = node.Mark();
  return {node.Scalar(),
          file + ":" + std::to_string(mark.line + 1) + ":" + std::to_string(mark.column + 1)};
}

}  // namespace

const std::vector<TaskKind>& task_kinds() { return kinds(); }

bool add_task_kind(TaskKind kind) {
  kinds().push_back(std::move(kind));
  return true;
}

const TaskKind& task_kind(const std::string& name, const std::string& where) {
  std::vector<std::string> known;
  for (const TaskKind& kind : kinds()) {
    if (kind.name == name) return kind;
    known.push_back(kind.name);
  }
  check_choice("task", name, known, where);
  return kinds().front();
}

const TaskKind& task_kind_of(const std::string& text, const std::string& file,
                             const std::vector<std::string>& overrides) {
  NamedField task, model;
  try {
    const YAML::Node recipe = YAML::Load(text);
    if (recipe.IsMap()) {
      task = field_of(recipe["task"], file);
      if (recipe["model"].IsMap()) model = field_of(recipe["model"]["kind"], file);
    }
  } catch (const YAML::Exception&) {
  }
  if (const auto value = overridden(overrides, "task")) task = {*value, "--set"};
  if (const auto value = overridden(overrides, "model.kind")) model = {*value, "--set"};
  if (!task.where.empty()) return task_kind(task.value, task.where);
  if (!model.where.empty()) return kind_of_model(model.value, model.where);
  return kinds().front();
}

}  // namespace strata
