// Stands for task/graph in a program that is built without it (cmake/tasks.cmake).
#include "strata/task/graph/graph_kind.h"

namespace strata {

TaskKind graph_task_kind() {
  return {.name = "graph", .title = "", .model_kinds = {}, .make = nullptr};
}

}  // namespace strata
