/// Makes the options of an executor whose tasks compute with tensors: it disables autograd.
#pragma once

#include <ATen/core/grad_mode.h>

#include <string>
#include <utility>

#include "strata/base/executor.h"

namespace strata {

inline ExecutorOptions tensor_executor(std::string name) {
  return {.name = std::move(name), .prepare_thread = [] { at::GradMode::set_enabled(false); }};
}

}  // namespace strata
