/// Adds what a GPU costs beside the model's own bytes and operations, and says how fast ranks on GPUs reach
/// each other.
///
/// Bytes: the driver's context, what libraries of products keep, the sums of attention's deterministic
/// backward, and the allocator's blocks of 512 bytes. Seconds: attention is slower than products, the norm and
/// the clearing of gradients are passes over them, and every kernel is launched. All of it by reckoning: nothing
/// was compared with a running GPU yet.
///
/// Source   PyTorch's CUDACachingAllocator (512); cuBLAS (32 MiB a handle and stream: CUBLAS_WORKSPACE_CONFIG
///          of device/determinism.h); FlashAttention 2's backward (fp32 dQ, once a group of multiprocessors
///          where it is deterministic) and its rates on an H100, github.com/Dao-AILab/flash-attention/pull/1893.
#pragma once

#include <cstdint>

#include "strata/plan/communication.h"
#include "strata/plan/machine_profile.h"
#include "strata/schedule/costs.h"
#include "strata/schedule/mesh.h"

namespace strata {

/// fp32 sums of dQ, by so many groups of blocks at once as fill the GPU.
std::int64_t attention_workspace_bytes(const AttentionShape& attention,
                                       std::int64_t multiprocessors);

/// Kernels of a layer's update: sums of squares cleared and made, the optimizer, the gradient cleared.
inline constexpr int kUpdateLaunches = 4;

/// Device seconds: no kernel is shorter.
inline constexpr double kShortestKernel = 2e-6;

/// The same costs on a CPU. What `machine` leaves out is assumed.
CostTable with_gpu_costs(CostTable costs, const MachineProfile& machine);

/// Of a described machine's links: an axis whose lines leave the machine goes over the network. `otherwise`
/// for what the description lacks.
AxisRates gpu_axis_rates(const MachineProfile& machine, const Mesh& mesh,
                         const AxisRates& otherwise);

}  // namespace strata
