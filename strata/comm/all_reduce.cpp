// An exported buffer is read after its export, when the caller may already write to x. Hence three
// ways to sum: small tensors export a copy; medium ones export a separate sum; large ones are
// summed in place and the ranks wait for each other before returning.
//
// On a device the same happens in stream order. A reader ends its export before it reports that it
// has read, so a rank that receives the report finds the export ended and its own stream waits for
// the read.
#include <ATen/ops/empty_like.h>

#include <algorithm>

#include "strata/base/errors.h"
#include "strata/comm/collectives.h"
#include "strata/comm/exchange.h"
#include "strata/comm/ordered_sum.h"

namespace strata {
namespace {

constexpr std::int64_t kSmall = 1 << 13;   // elements: below, one round of whole tensors is faster
constexpr std::int64_t kCut = 16;          // elements: where tensors are cut among ranks
constexpr std::size_t kInPlace = 1 << 22;  // bytes: above, memory is worth more than a barrier

Shards even_shards(std::int64_t numel, int ranks) {
  const std::int64_t size = (numel / kCut + ranks - 1) / ranks * kCut;
  Shards shards;
  for (int rank = 0; rank < ranks; ++rank) {
    const std::int64_t end = rank + 1 == ranks ? numel : std::min((rank + 1) * size, numel);
    shards.push_back({std::min(rank * size, numel), end});
  }
  return shards;
}

void sum_copies(Group& group, const at::Tensor& x) {
  const at::Tensor copy = copy_of(group.rank_device(), x);
  sum_whole(group, exchange(group, copy, [&](int) { return copy; }), x.view(-1));
}

// Shards are read in place and whole: chunks would only add launches.
void all_reduce_on_device(Group& group, const at::Tensor& x) {
  RankDevice& device = group.rank_device();
  if (device.reduction == Reduction::kNative && by_communicator(group, x)) {
    Communicator& communicator = group.communicator();
    group.count_sent(2 * static_cast<std::int64_t>(x.nbytes()) * (group.size() - 1) / group.size());
    return InFlight(device, {x},
                    [&](const Stream& stream) { communicator.all_reduce_sum(x, stream); })
        .finish();
  }
  if (x.numel() <= kSmall) return sum_copies(group, x);
  const at::Tensor flat = x.view(-1);
  const Shards shards = even_shards(flat.numel(), group.size());
  const at::Tensor own = shard_of(flat, shards, group.rank());
  const bool in_place = x.nbytes() >= kInPlace;
  const at::Tensor sum = in_place ? own : device.ops->empty_like(device.stream, own);
  ReduceScatter::start(group, flat, shards).finish(sum);
  AllGather::start(group, sum, shards, flat).finish();
  if (!in_place) return;
  group.barrier();
  group.before_write(own);
}

}  // namespace

at::Tensor shard_of(const at::Tensor& flat, const Shards& shards, int rank) {
  const FlatRange& shard = shards[static_cast<std::size_t>(rank)];
  return flat.narrow(0, shard.begin, shard.size());
}

void all_reduce_sum(Group& group, at::Tensor& x) {
  if (group.size() == 1) return;
  STRATA_CHECK(x.is_contiguous(), "comm.all_reduce_sum");
  if (through_host(group, x))
    return on_host(group, x, [&](at::Tensor& host) { all_reduce_sum(group, host); });
  if (group.rank_device().owns(x)) return all_reduce_on_device(group, x);
  if (x.numel() <= kSmall) return sum_copies(group, x);
  const at::Tensor flat = x.view(-1);
  const Shards shards = even_shards(flat.numel(), group.size());
  const at::Tensor own = shard_of(flat, shards, group.rank());
  const bool in_place = x.nbytes() >= kInPlace;
  const at::Tensor sum = in_place ? own : at::empty_like(own);
  ReduceScatter summing = ReduceScatter::start(group, flat, shards);
  AllGather gathering = AllGather::prepare(group, group.next_collective(), sum, shards, flat);
  for (std::int64_t begin = 0; begin < sum.numel(); begin += kChunkElements) {
    const std::int64_t end = std::min(begin + kChunkElements, sum.numel());
    sum_in_order(summing.terms_, sum.narrow(0, begin, end - begin));
    // The rank with the last part continues: all others have then read this rank's part.
    if (end == sum.numel()) summing.terms_.clear();
    gathering.export_part(begin, end);  // on its way while the next is summed
  }
  summing.terms_.clear();  // of a rank with an empty part
  gathering.finish();
  if (in_place) group.barrier();
}

void all_reduce_max(Group& group, at::Tensor& x) {
  if (group.size() == 1) return;
  if (through_host(group, x))
    return on_host(group, x, [&](at::Tensor& host) { all_reduce_max(group, host); });
  const at::Tensor copy = copy_of(group.rank_device(), x);
  max_whole(group, exchange(group, copy, [&](int) { return copy; }), x);
}

}  // namespace strata
