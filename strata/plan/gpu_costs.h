/// Adds what a GPU costs beside the model's own bytes and operations, and says how fast ranks on GPUs reach
/// each other.
///
/// Bytes: the context of the driver, workspaces of products and of attention's deterministic backward, and
/// the allocator's blocks of 512 bytes, a line of the ledger each. Seconds: no layer is faster than its
/// launches. All of it by a machine's description: nothing of it was compared with a running GPU yet.
///
/// Source   PyTorch's CUDACachingAllocator (512); cuBLAS (32 MiB a handle and stream on Hopper);
///          FlashAttention 2's backward (fp32 dQ, once a group of multiprocessors where it is deterministic).
#pragma once

#include <cstdint>

#include "strata/plan/communication.h"
#include "strata/plan/machine_profile.h"
#include "strata/schedule/costs.h"
#include "strata/schedule/mesh.h"

namespace strata {

/// What attention of one micro-batch is on a rank; 0 heads: the model has none.
struct AttentionShape {
  std::int64_t samples = 0;
  std::int64_t heads = 0;
  std::int64_t tokens = 0;
  std::int64_t head_width = 0;
};

/// fp32 sums of dQ, by so many groups of blocks at once as fill the GPU.
std::int64_t attention_workspace_bytes(const AttentionShape& attention,
                                       std::int64_t multiprocessors);

/// The same costs on a CPU.
CostTable with_gpu_costs(CostTable costs, const MachineProfile& machine,
                         const AttentionShape& attention);

/// Of a described machine's links: an axis whose lines leave the machine goes over the network. `otherwise`
/// for what the description lacks.
AxisRates gpu_axis_rates(const MachineProfile& machine, const Mesh& mesh,
                         const AxisRates& otherwise);

}  // namespace strata
