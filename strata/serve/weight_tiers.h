/// Makes what moves the weights of a served model between the device, host memory and a disk.
///
/// Weights on a disk are in a file of the rank, in the folder that the options name, and pass
/// through staging buffers on the host (disk/staging.h). The file has no commits: it is written
/// when weights are loaded.
///
/// Errors  UserError: what ChunkFile::create() refuses.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "strata/comm/group.h"
#include "strata/device/account.h"
#include "strata/device/link.h"
#include "strata/disk/chunk_file.h"
#include "strata/nn/graph/sequential.h"
#include "strata/schedule/step_plan.h"
#include "strata/tier/store.h"

namespace strata {

struct WeightTiers {
  LinkOptions link = {};        ///< between device and host
  std::int64_t host_bytes = 0;  ///< budget of a rank's host memory; 0: no limit
  std::string disk = {};        ///< a folder that no other program uses; the caller removes it
  ChunkFileOptions file = {.setting = "memory.disk.path", .slots = 1};
};

/// The rank's folder on the disk for `what`; empty if there is no disk.
std::string folder_of_rank(const WeightTiers& tiers, const Group& world, const std::string& what);

/// The type of a model's weights and of the values between its layers.
at::ScalarType weight_type(const Sequential& model);

/// Where a rank keeps the weights of a layer.
ShardPlacement weight_placement(const Sequential& model, const StepPlan& steps, int layer);

/// Moves the weights of these layers of a rank. `host` is charged for what lives in host memory.
Backends weight_backends(const Sequential& model, const StepPlan& steps,
                         const std::vector<int>& layers, const WeightTiers& tiers,
                         const Group& world, MemoryAccount& host);

}  // namespace strata
