/// Lists the kinds of tasks that a recipe may name.
///
/// Threads  add_task_kind() before main() or by one thread; the others, any thread after that.
/// Errors   UserError: a kind that does not exist.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "strata/task/task.h"

namespace strata {

struct TaskKind {
  std::string name;   ///< "text": what the field `task` says
  std::string title;  ///< of its table of fields, one sentence
  /// Values of model.kind that mean this kind where the recipe has no field `task`.
  std::vector<std::string> model_kinds;
  std::unique_ptr<Task> (*make)();  ///< every field at its default
};

/// The first one is the kind of a recipe that names none.
const std::vector<TaskKind>& task_kinds();

/// Registers one more kind. Returns true, so that a variable's initialiser may call it.
bool add_task_kind(TaskKind kind);

/// The kind called `name`; `where` is its place in errors.
const TaskKind& task_kind(const std::string& name, const std::string& where);

/// The kind that a recipe names by `task` or `model.kind`, in an override, else in its text. The
/// first one for a text that is no YAML, whose reader says what is wrong. `file` names the text in
/// errors.
const TaskKind& task_kind_of(const std::string& text, const std::string& file,
                             const std::vector<std::string>& overrides);

}  // namespace strata
