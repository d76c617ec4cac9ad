/// Makes the cost table of a model: bytes by shape inference, seconds from FLOPs (probe.h measures).
///
/// Shapes  batch_inputs: those of a full micro-batch.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "strata/device/device.h"
#include "strata/nn/sequential.h"
#include "strata/schedule/costs.h"

namespace strata {

struct CostRequest {
  std::vector<TensorSpec> batch_inputs;
  std::int64_t samples = 0;      ///< of the mini-batch
  std::int64_t micro_batch = 0;  ///< samples of a full micro-batch
  int optimizer_slots = 2;
  at::ScalarType precision = at::kFloat;  ///< 16 bit: the optimizer keeps fp32 weights beside
  Device device = {};                     ///< that layers are probed on
  bool keep_intermediates = false;        ///< recompute: none
};

/// Bytes exactly, seconds as FLOPs at kAssumedFlopsPerSecond: enough to refuse what can't fit
/// before anything is allocated.
CostTable byte_costs(const Sequential& model, const CostRequest& request);

inline constexpr double kAssumedFlopsPerSecond = 50e9;

}  // namespace strata
