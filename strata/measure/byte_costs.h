/// Makes the cost table of a model: bytes by shape inference, seconds from FLOPs (probe.h
/// measures).
///
/// Shapes  batch_inputs: those of a full micro-batch.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "strata/device/device.h"
#include "strata/layout/costs.h"
#include "strata/nn/graph/sequential.h"

namespace strata {

inline constexpr double kAssumedFlopsPerSecond = 50e9;
inline constexpr double kAssumedMemoryRate = 10e9;  ///< read and written together

/// Outer steps of replicas that train apart (optim/outer_step.h).
struct OuterCost {
  int states = 0;          ///< outer_states(), in fp32
  std::int64_t every = 0;  ///< steps; 0: none
  int replicas = 1;
};

struct CostRequest {
  std::vector<TensorSpec> batch_inputs;
  std::int64_t samples = 0;         ///< of the mini-batch of one replica
  std::int64_t loaded_samples = 0;  ///< in a rank's memory at once; 0: as many as `samples`
  std::int64_t micro_batch = 0;     ///< samples of a full micro-batch
  int optimizer_slots = 2;
  bool orthogonalises = false;  ///< Optimizer::orthogonalises()
  bool trust_ratios = false;    ///< Optimizer::has_trust_ratios()
  bool sends_signs = false;     ///< Optimizer::sends_signs(), to other replicas or shard groups
  OuterCost outer = {};
  at::ScalarType precision = at::kFloat;  ///< 16 bit: the optimizer also keeps fp32 weights
  Device device = {};                     ///< the device on which layers are probed
  Recompute recompute = Recompute::kCheap;
  bool halves = false;  ///< backwards are probed in two halves
  double flops_per_second = kAssumedFlopsPerSecond;
  double memory_bytes_per_second = kAssumedMemoryRate;  ///< of the device, for updates
  /// Whether reads and writes of operators other than products count at that rate. On a GPU they
  /// do, because its products are fast.
  bool counts_passes = false;
};

/// Computes bytes exactly, and seconds from FLOPs and, for updates, from bytes at the given rates:
/// enough to refuse a model that does not fit before anything is allocated. With passes, also
/// counts memory traffic between products: each number that backward could need is written and read
/// once in forward and passes six times in backward (read, recomputed, its gradient written, read
/// and added up); logits pass six times in all. Counted for a GPT's block with the operators of
/// strata/nn/ops: 34 and 94 times its width per token, for 16 such numbers.
CostTable byte_costs(const Sequential& model, const CostRequest& request);

/// The request's level, or the layer's deepest if that is less: layers with equal levels cost the
/// same.
Recompute level_of(const Layer& layer, const CostRequest& request);

}  // namespace strata
