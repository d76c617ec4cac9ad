#include "strata/task/kinds/kinds.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "strata/base/errors.h"
#include "strata/base/user_text.h"
#include "strata/task/graph/graph_kind.h"
#include "strata/task/recommender/recommender_kind.h"
#include "strata/task/text/text_task.h"

namespace strata {
namespace {

struct Registry {
  std::vector<TaskKind> built, left_out;
};

// All registered kinds of tasks.
Registry& registry() {
  static Registry all = [] {
    Registry sorted;
    for (TaskKind& kind : std::vector{text_task_kind(), recommender_task_kind(), graph_task_kind()})
      (kind.make ? sorted.built : sorted.left_out).push_back(std::move(kind));
    return sorted;
  }();
  return all;
}

// The kind that has `value` among its `values`.
template <typename Values>
const TaskKind& kind_with(const std::string& field, const std::string& value,
                          const std::string& where, const Values& values) {
  std::vector<std::string> known;
  for (const TaskKind& kind : registry().built)
    for (const std::string& each : values(kind)) {
      if (each == value) return kind;
      known.push_back(each);
    }
  for (const TaskKind& kind : registry().left_out)
    if (std::ranges::count(values(kind), value) > 0) refuse_task_not_built(kind.name, where);
  check_choice(field, value, known, where);
  return registry().built.front();
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

const std::vector<TaskKind>& task_kinds() { return registry().built; }

bool add_task_kind(TaskKind kind) {
  registry().built.push_back(std::move(kind));
  return true;
}

void refuse_task_not_built(const std::string& name, const std::string& where) {
  std::string built;
  for (const TaskKind& kind : registry().built) built += (built.empty() ? "" : ", ") + kind.name;
  throw UserError({.operation = "task.kinds",
                   .where = where,
                   .what = "this program was built without task " + quote(name),
                   .expected = "task " + built,
                   .got = "task " + name,
                   .fix = "run make build, which builds every task"});
}

const TaskKind& task_kind(const std::string& name, const std::string& where) {
  return kind_with("task", name, where,
                   [](const TaskKind& kind) { return std::vector{kind.name}; });
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
  if (!model.where.empty())
    return kind_with("model.kind", model.value, model.where,
                     [](const TaskKind& kind) { return kind.model_kinds; });
  return registry().built.front();
}

}  // namespace strata
