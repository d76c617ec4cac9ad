/// The kind of task that trains exported models, for the list of kinds (task/kinds/kinds.h).
#pragma once

#include "strata/task/task_kind.h"

namespace strata {

TaskKind graph_task_kind();

}  // namespace strata
