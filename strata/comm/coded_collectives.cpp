#include "strata/comm/coded_collectives.h"

#include <utility>

#include "strata/base/errors.h"

namespace strata {
namespace {

// Calls f(rank, code) in rank order; the codes of others are read where they are.
template <typename F>
void for_each_code(Group& group, const MessageTag& tag, const at::Tensor& own, F f) {
  for (int rank = 0; rank < group.size(); ++rank)
    f(rank, rank == group.rank() ? own : group.import_buffer(rank, tag).tensor());
}

}  // namespace

CodedSum::CodedSum(Group& group, Shards shards, BlockCode code)
    : group_(&group),
      tag_(group.next_collective()),
      shards_(std::move(shards)),
      code_(std::move(code)) {
  STRATA_CHECK_EQ(shards_.size(), static_cast<std::size_t>(group.size()), "comm.coded_sum");
}

CodedSum CodedSum::start(Group& group, const at::Tensor& flat, Shards shards, BlockCode code) {
  CodedSum sum(group, std::move(shards), std::move(code));
  for (int peer = 0; peer < group.size(); ++peer) {
    const FlatRange shard = sum.shards_[static_cast<std::size_t>(peer)];
    at::Tensor packed = sum.code_.encode(flat.narrow(0, shard.begin, shard.size()), shard);
    if (peer == group.rank()) {
      sum.own_ = std::move(packed);
    } else {
      group.export_buffer(peer, sum.tag_, std::move(packed));
    }
  }
  return sum;
}

void CodedSum::finish(const at::Tensor& into, bool accumulate) {
  const FlatRange shard = shards_[static_cast<std::size_t>(group_->rank())];
  if (!accumulate) into.zero_();
  for_each_code(*group_, tag_, own_,
                [&](int, const at::Tensor& packed) { code_.add(packed, shard, into); });
  own_.reset();
}

CodedGather::CodedGather(Group& group, Shards shards, BlockCode code)
    : group_(&group),
      tag_(group.next_collective()),
      shards_(std::move(shards)),
      code_(std::move(code)) {
  STRATA_CHECK_EQ(shards_.size(), static_cast<std::size_t>(group.size()), "comm.coded_gather");
}

CodedGather CodedGather::start(Group& group, const at::Tensor& shard, Shards shards,
                               BlockCode code) {
  CodedGather gather(group, std::move(shards), std::move(code));
  const auto own = static_cast<std::size_t>(group.rank());
  gather.own_ = gather.code_.encode(shard, gather.shards_[own]);
  for (int peer = 0; peer < group.size(); ++peer)
    if (peer != group.rank()) group.export_buffer(peer, gather.tag_, gather.own_);
  return gather;
}

void CodedGather::finish(const at::Tensor& flat, std::int64_t begin) {
  for_each_code(*group_, tag_, own_, [&](int rank, const at::Tensor& packed) {
    const FlatRange shard = shards_[static_cast<std::size_t>(rank)];
    code_.decode(packed, shard, flat.narrow(0, shard.begin - begin, shard.size()));
  });
  own_.reset();
}

}  // namespace strata
