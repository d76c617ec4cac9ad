// Stands for task/recommender in a program that is built without it (cmake/tasks.cmake).
#include "strata/task/recommender/recommender_kind.h"

#include "strata/models/recommender_options.h"

namespace strata {

TaskKind recommender_task_kind() {
  return {.name = "recommender",
          .title = "",
          .model_kinds = {name_of(RecommenderKind::kDlrm), name_of(RecommenderKind::kDcn),
                          name_of(RecommenderKind::kDeepWide)},
          .make = nullptr};
}

}  // namespace strata
