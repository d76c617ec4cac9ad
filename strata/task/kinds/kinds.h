/// Lists the kinds of tasks that a recipe may name.
///
/// Threads  add_task_kind() before main() or by one thread; the others, any thread after that.
/// Errors   UserError: a kind that does not exist, or that this program was built without.
#pragma once

#include <string>
#include <vector>

#include "strata/task/task_kind.h"

namespace strata {

/// The kinds of this program. The first one is the default of a recipe that names none.
const std::vector<TaskKind>& task_kinds();

/// Registers one more kind. Returns true, so that the initialiser of a variable can call it.
bool add_task_kind(TaskKind kind);

/// The kind called `name`; `where` is its place for errors.
const TaskKind& task_kind(const std::string& name, const std::string& where);

/// The kind that a recipe selects by `task` or `model.kind`, in an override or in its text. Returns
/// the first kind for text that is not YAML, because the parser will report the error. `file` names
/// the text in errors.
const TaskKind& task_kind_of(const std::string& text, const std::string& file,
                             const std::vector<std::string>& overrides);

/// Throws the UserError of a request that needs a kind that this program was built without.
[[noreturn]] void refuse_task_not_built(const std::string& name, const std::string& where);

}  // namespace strata
