/// Estimates what NCCL keeps on a GPU for a rank's communicators (comm/communicators.h): one per
/// set of ranks that reduce or gather together and live in several processes.
///
/// In a sum in rank order each rank sends to all others, so a communicator has a receive and a send
/// buffer for every other rank and channel. We have measured none of this.
///
/// Source  github.com/NVIDIA/nccl/issues/1685: the first such exchange among 8 H100s of a machine
///         has 32 channels per pair, allocates 10 and 2 MiB each and takes 3.3 GB per GPU, where
///         this estimate gives 2.8; issues/1189: 2 channels per pair if the pair is on two
///         machines.
/// Units   bytes.
#pragma once

#include <cstdint>

#include "strata/layout/mesh.h"

namespace strata {

struct RankLayout {
  int processes = 1;  ///< processes that share the ranks, in order
  /// GPUs of a machine, one rank each; 0: all ranks are on one machine
  std::int64_t devices = 0;
};

/// Bytes of the rank with the most. `shard_ranks`: replicas that divide states; 0: all.
std::int64_t communicator_bytes(const Mesh& mesh, int shard_ranks, const RankLayout& layout);

}  // namespace strata
