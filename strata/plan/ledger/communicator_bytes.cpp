#include "strata/plan/ledger/communicator_bytes.h"

#include <set>
#include <utility>

namespace strata {
namespace {

constexpr std::int64_t kChannelBytes = std::int64_t{12} << 20;  // per pair of ranks
constexpr std::int64_t kChannelsInside = 32, kChannelsAcross = 2;

}  // namespace

std::int64_t communicator_bytes(const Mesh& mesh, int shard_ranks, const RankLayout& layout) {
  // Adjacent ranks of a set are as far apart as the inner axes are long, so all ranks of a set are
  // within this span.
  const int shards = shard_ranks == 0 ? mesh[Axis::kData] : shard_ranks;
  const std::set<std::pair<int, int>> sets{
      {mesh.size(), mesh.size()},
      {mesh[Axis::kData], mesh.span(Axis::kData)},
      {shards, mesh.span(Axis::kData) / mesh[Axis::kData] * shards},
      {mesh[Axis::kTensor], mesh.span(Axis::kTensor)}};
  const int in_process = mesh.size() / layout.processes;
  std::int64_t bytes = 0;
  for (const auto& [ranks, span] : sets) {
    // ranks of one process need no communicator
    if (ranks == 1 || in_process % span == 0) continue;
    const bool inside = layout.devices == 0 || layout.devices % span == 0;
    bytes += (ranks - 1) * (inside ? kChannelsInside : kChannelsAcross) * kChannelBytes;
  }
  return bytes;
}

}  // namespace strata
