/// Adds what a GPU costs in addition to the model's own bytes and operations, and computes the
/// rates between ranks on GPUs and the memory of their communicators.
///
/// Bytes: the driver's context, workspaces of the libraries, the sums of attention's deterministic
/// backward, and the allocator's blocks of 512 bytes. Seconds: attention is slower than products,
/// the norm and the clearing of gradients are passes over them, and every kernel is launched. All
/// numbers are computed; none was compared with a running GPU yet.
///
/// Source   PyTorch's CUDACachingAllocator (512); cuBLAS (32 MiB per handle and stream:
///          CUBLAS_WORKSPACE_CONFIG of device/determinism.h); FlashAttention 2's backward (fp32 dQ,
///          once per group of multiprocessors if deterministic) and its rates on an H100,
///          github.com/Dao-AILab/flash-attention/pull/1893.
#pragma once

#include <cstdint>

#include "strata/layout/costs.h"
#include "strata/layout/mesh.h"
#include "strata/plan/machine_profile.h"
#include "strata/plan/simulate/communication.h"

namespace strata {

/// fp32 sums of dQ, one for each group of blocks that run at once to fill the GPU.
std::int64_t attention_workspace_bytes(const AttentionShape& attention,
                                       std::int64_t multiprocessors);

/// Kernels of a layer's update: clear and compute sums of squares, run the optimizer, clear the
/// gradient.
inline constexpr int kUpdateLaunches = 4;

/// How often each number that backward could need passes over the memory: it is written and read in
/// forward; backward reads it, computes it again, and writes, reads and adds up its gradient.
inline constexpr double kForwardPasses = 2, kBackwardPasses = 6;

/// Device seconds of the shortest kernel.
inline constexpr double kShortestKernel = 2e-6;

/// Converts costs measured on a CPU. Assumes what `machine` leaves out.
CostTable with_gpu_costs(CostTable costs, const MachineProfile& machine);

/// Rates from the described links: an axis whose lines leave the machine uses the network.
/// `otherwise` supplies what the description lacks.
AxisRates gpu_axis_rates(const MachineProfile& machine, const Mesh& mesh,
                         const AxisRates& otherwise);

struct RankLayout {
  int processes = 1;  ///< processes that share the ranks, in order
  /// GPUs of a machine, one rank each; 0: all ranks are on one machine
  std::int64_t devices = 0;
};

/// Estimates what NCCL keeps on a GPU for a rank's communicators (comm/communicators.h): one per
/// set of ranks that reduce or gather together and live in several processes. In a sum in rank
/// order each rank sends to all others, so a communicator has a receive and a send buffer for every
/// other rank and channel. The bytes are those of the rank with the most. `shard_ranks`: replicas
/// that divide states; 0: all.
///
/// Source  github.com/NVIDIA/nccl/issues/1685: the first such exchange among 8 H100s of a machine
///         has 32 channels per pair, allocates 10 and 2 MiB each and takes 3.3 GB per GPU, where
///         this estimate gives 2.8; issues/1189: 2 channels per pair if the pair is on two
///         machines.
std::int64_t communicator_bytes(const Mesh& mesh, int shard_ranks, const RankLayout& layout);

}  // namespace strata
