/// Describes a kind of task: its names, and how one is made.
#pragma once

#include <memory>
#include <string>
#include <vector>

namespace strata {

class Task;

struct TaskKind {
  std::string name;   ///< "text": the value of the field `task`
  std::string title;  ///< title of its table of fields, one sentence
  /// Values of model.kind that select this kind if the recipe has no field `task`.
  std::vector<std::string> model_kinds;
  /// Makes a task with every field at its default; null: the program was built without this kind.
  std::unique_ptr<Task> (*make)();
};

}  // namespace strata
