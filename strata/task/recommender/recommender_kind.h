/// Registers the task recommender, or its stand-in in a program that is built without it.
#pragma once

#include "strata/task/task_kind.h"

namespace strata {

TaskKind recommender_task_kind();

}  // namespace strata
