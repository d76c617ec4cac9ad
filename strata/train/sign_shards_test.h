/// Trains small models with optimizers that send signs on replicas that share shards.
#pragma once

#include "strata/train/mesh_run_test.h"

namespace strata::sign_shards {

// 1-bit Adam sends signs from the fifth update on. 0/1 Adam sums gradients in updates 1, 2 and 3,
// and sends nothing between groups in 8, 11, 12, 14 and 15.
inline constexpr std::int64_t kFreeze = 4;
inline constexpr int kSteps = 12;  // 0/1 Adam ends inside a round

inline void schedule(TrainerOptions& options) {
  options.optimizer.freeze_step = kFreeze;
  options.optimizer.refresh_doubling = 2;
  options.optimizer.local_doubling = 3;
  options.optimizer.local_most = 3;
  options.optimizer.epsilon = 1e-8;  // AdamW's own
}

// Each replica has several micro-batches. Layers of some blocks have parts without elements.
inline MeshCase shared_case(OptimizerKind kind, int groups, int shards, int zero) {
  MeshCase c;
  c.model = {.layers = 2, .width = 32, .heads = 4, .vocab = 48, .context = 16, .dropout = 0.1};
  c.mesh[Axis::kData] = groups * shards;
  c.zero = zero;
  c.shard_ranks = zero > 0 ? shards : 0;
  c.mini_batch = 12;
  c.micro_batch = 1;
  c.optimizer = kind;
  c.steps = kSteps;
  return c;
}

inline MeshRecord train(const MeshCase& c) { return train_on_mesh(c, schedule); }

}  // namespace strata::sign_shards
