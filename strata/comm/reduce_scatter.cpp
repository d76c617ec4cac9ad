// Every rank sums its own shard from buffers that the others export. Partial sums are not passed on
// as in a ring, so the bits depend neither on timing nor on the distribution of ranks over
// processes. With a communicator, ranks cannot read each other's memory, and an all-to-all carries
// the shards to the ranks that sum them.
#include <algorithm>

#include "strata/base/errors.h"
#include "strata/comm/collectives.h"
#include "strata/comm/exchange.h"
#include "strata/comm/ordered_sum.h"

namespace strata {

at::Tensor reduce_scatter(Group& group, const at::Tensor& x, int dim) {
  if (group.size() == 1) return x;
  const std::int64_t size = x.size(dim) / group.size();
  STRATA_CHECK_EQ(size * group.size(), x.size(dim), "comm.reduce_scatter");
  RankDevice& device = group.rank_device();
  if (through_host(group, x))
    return on_host(group, contiguous(device, x),
                   [&](at::Tensor& host) { return reduce_scatter(group, host, dim); });
  const auto part = [&](int rank) { return contiguous(device, x.narrow(dim, rank * size, size)); };
  const std::vector<ImportedBuffer> terms = exchange(group, x, part);
  at::DimVector sizes(x.sizes());
  sizes[static_cast<std::size_t>(dim)] = size;
  const at::Tensor sum = empty_on_device_of(device, x, sizes);
  sum_whole(group, terms, sum);
  return sum;
}

ReduceScatter ReduceScatter::start(Group& group, at::Tensor flat, Shards shards) {
  STRATA_CHECK_EQ(shards.size(), static_cast<std::size_t>(group.size()), "comm.reduce_scatter");
  ReduceScatter sum;
  sum.group_ = &group;
  if (by_communicator(group, flat)) {
    sum.start_by_communicator(flat, shards);
    return sum;
  }
  sum.through_host_ = through_host(group, flat);
  if (sum.through_host_) flat = group.rank_device().on_host(flat);
  const MessageTag tag = group.next_collective();
  const std::int64_t numel = shards[static_cast<std::size_t>(group.rank())].size();
  for (int peer = 0; peer < group.size(); ++peer) {
    const at::Tensor shard = shard_of(flat, shards, peer);
    if (peer == group.rank()) {
      sum.terms_.emplace_back(ImportedBuffer(shard));
    } else {
      export_chunks(group, peer, tag, shard, 0, shard.numel());
      sum.terms_.emplace_back(group, peer, tag, numel);
    }
  }
  return sum;
}

// Receives this rank's part of every rank's buffer, or of their sum if the communicator computes
// it.
void ReduceScatter::start_by_communicator(const at::Tensor& flat, const Shards& shards) {
  RankDevice& device = group_->rank_device();
  Communicator& communicator = group_->communicator();
  const at::Tensor own = shard_of(flat, shards, group_->rank());
  group_->count_sent(static_cast<std::int64_t>(flat.nbytes() - own.nbytes()));
  if (device.reduction == Reduction::kNative) {
    const at::Tensor sum = device.ops->empty_like(device.stream, own);
    in_flight_ = InFlight(device, {flat, sum}, [&](const Stream& stream) {
      communicator.reduce_scatter_sum(flat, shards, sum, stream);
    });
    terms_.emplace_back(ImportedBuffer(sum));
    return;
  }
  std::vector<Communicator::Part> sends, receives;
  std::vector<at::Tensor> used{flat};
  for (int peer = 0; peer < group_->size(); ++peer) {
    if (peer == group_->rank()) {
      terms_.emplace_back(ImportedBuffer(own));
      continue;
    }
    sends.push_back({peer, shard_of(flat, shards, peer)});
    receives.push_back({peer, device.ops->empty_like(device.stream, own)});
    used.push_back(receives.back().tensor);
    terms_.emplace_back(ImportedBuffer(receives.back().tensor));
  }
  in_flight_ = InFlight(device, std::move(used), [&](const Stream& stream) {
    communicator.exchange(sends, receives, stream);
  });
}

bool ReduceScatter::has_arrived() const {
  return !in_flight_ && std::ranges::all_of(terms_, &ImportedChunks::has_arrived);
}

void ReduceScatter::finish(const at::Tensor& into, bool accumulate) {
  RankDevice& device = group_->rank_device();
  if (through_host_) {
    const at::Tensor host = accumulate ? device.on_host(into) : device.ops->host_empty_like(into);
    if (accumulate) terms_.emplace(terms_.begin(), ImportedBuffer(host));
    sum_in_order(terms_, host);
    device.copy_to_device(into, host);
  } else {
    if (accumulate) terms_.emplace(terms_.begin(), ImportedBuffer(into));
    if (in_flight_) in_flight_.finish();
    sum_whole(*group_, terms_, into);
  }
  terms_.clear();
}

}  // namespace strata
