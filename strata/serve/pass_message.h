/// Carries a pass from the rank that decides to the other ranks, as a tensor of int64.
///
/// Errors  InternalError: a tensor that carries no pass.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

#include "strata/batching/pass.h"

namespace strata {

enum class PassOrder : std::int64_t {
  kRun,   ///< runs the pass
  kWait,  ///< shows that the deciding rank lives; no pass
  kLoad,  ///< replaces the weights by those of a checkpoint; no pass
  kStop,  ///< ends the ranks' loops
};

struct PassMessage {
  PassOrder order = PassOrder::kRun;
  PageMoves moves = {};         ///< of kRun
  Pass pass = {};               ///< of kRun
  std::string checkpoint = {};  ///< of kLoad
};

at::Tensor tensor_of(const PassMessage& message);
PassMessage pass_message_of(const at::Tensor& tensor);

}  // namespace strata
