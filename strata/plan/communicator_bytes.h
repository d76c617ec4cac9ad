/// Estimates what NCCL keeps on a GPU for a rank's communicators (comm/communicators.h): one for each set of ranks
/// that add or gather together and live in several processes.
///
/// In a sum in rank order each rank sends to all others, so a communicator has for every other rank and channel a
/// buffer to receive in and one to send from. Nothing of ours was measured.
///
/// Source  github.com/NVIDIA/nccl/issues/1685: the first such exchange among 8 H100s of a machine has 32 channels a
///         pair, allocates 10 and 2 MiB each and takes 3.3 GB a GPU, where this says 2.8; issues/1189: 2 channels a
///         pair once a pair is on two machines.
/// Units   bytes.
#pragma once

#include <cstdint>

#include "strata/schedule/mesh.h"

namespace strata {

struct RankLayout {
  int processes = 1;         ///< among which the ranks are divided, in order
  std::int64_t devices = 0;  ///< of a machine, each one rank's; 0: all ranks are on one
};

/// Of the rank that has most. `shard_ranks`: replicas that divide states; 0: all.
std::int64_t communicator_bytes(const Mesh& mesh, int shard_ranks, const RankLayout& layout);

}  // namespace strata
