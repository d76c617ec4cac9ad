#include "strata/comm/collectives.h"

#include <ATen/Dispatch.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/maximum.h>

#include <algorithm>

#include "strata/base/errors.h"

namespace strata {
namespace {

constexpr std::int64_t kSmall = 1 << 13;  // elements: below, one round of whole tensors is faster
constexpr std::int64_t kPiece = 16;       // elements: where tensors are cut among ranks
constexpr std::int64_t kBlock = 1024;     // elements summed at a time, in registers and L1

// out = terms[0] + terms[1] + ..., each element in that order; out may be one of the terms.
template <typename T>
void sum_in_order(const std::vector<const T*>& terms, T* out, std::int64_t numel) {
  using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;
  Wide sum[kBlock];
  for (std::int64_t begin = 0; begin < numel; begin += kBlock) {
    const std::int64_t count = std::min(kBlock, numel - begin);
    const T* first = terms[0] + begin;
    for (std::int64_t i = 0; i < count; ++i) sum[i] = static_cast<Wide>(first[i]);
    for (std::size_t t = 1; t < terms.size(); ++t) {
      const T* term = terms[t] + begin;
      for (std::int64_t i = 0; i < count; ++i) sum[i] += static_cast<Wide>(term[i]);
    }
    for (std::int64_t i = 0; i < count; ++i) out[begin + i] = static_cast<T>(sum[i]);
  }
}

void sum_in_order(const std::vector<at::Tensor>& terms, const at::Tensor& out) {
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kBFloat16, at::kHalf, out.scalar_type(), "sum_in_order", [&] {
    std::vector<const scalar_t*> pointers;
    for (const at::Tensor& term : terms) {
      STRATA_CHECK(term.is_contiguous() && term.numel() == out.numel(), "comm.sum");
      pointers.push_back(term.const_data_ptr<scalar_t>());
    }
    sum_in_order<scalar_t>(pointers, out.data_ptr<scalar_t>(), out.numel());
  });
}

void max_of(const std::vector<at::Tensor>& terms, const at::Tensor& out) {
  at::Tensor most = terms[0];
  for (std::size_t i = 1; i < terms.size(); ++i) most = at::maximum(most, terms[i]);
  out.copy_(most);
}

Shards even_shards(std::int64_t numel, int ranks) {
  const std::int64_t share = (numel / kPiece + ranks - 1) / ranks * kPiece;
  Shards shards;
  for (int rank = 0; rank < ranks; ++rank) {
    const std::int64_t end = rank + 1 == ranks ? numel : std::min((rank + 1) * share, numel);
    shards.push_back({std::min(rank * share, numel), end});
  }
  return shards;
}

at::Tensor shard_of(const at::Tensor& flat, const Shards& shards, int rank) {
  return flat.narrow(0, shards[rank].begin, shards[rank].size());
}

// Every rank's tensor, own one included, in rank order.
std::vector<at::Tensor> exchange(Group& group, const at::Tensor& x) {
  const MessageTag tag = group.next_collective();
  for (int peer = 0; peer < group.size(); ++peer)
    if (peer != group.rank()) group.lend(peer, tag, x);
  std::vector<at::Tensor> all;
  for (int peer = 0; peer < group.size(); ++peer)
    all.push_back(peer == group.rank() ? x : group.borrow(peer, tag));
  return all;
}

}  // namespace

void all_reduce_sum(Group& group, at::Tensor& x) {
  if (group.size() == 1) return;
  STRATA_CHECK(x.is_contiguous(), "comm.all_reduce_sum");
  // The others may still read what was lent when this rank writes: small tensors lend a copy, large
  // ones are written only after every rank has sent its sum.
  if (x.numel() <= kSmall) return sum_in_order(exchange(group, x.clone()), x.view(-1));
  const at::Tensor flat = x.view(-1);
  const Shards shards = even_shards(flat.numel(), group.size());
  const at::Tensor sum = at::empty_like(shard_of(flat, shards, group.rank()));
  ShardedSum::start(group, flat, shards).finish(sum);
  ShardedGather::start(group, sum, shards).finish(flat);
}

void all_reduce_max(Group& group, at::Tensor& x) {
  if (group.size() > 1) max_of(exchange(group, x.clone()), x);
}

at::Tensor all_gather(Group& group, const at::Tensor& x, int dim) {
  if (group.size() == 1) return x;
  return at::cat(exchange(group, x), dim);
}

at::Tensor reduce_scatter(Group& group, const at::Tensor& x, int dim) {
  if (group.size() == 1) return x;
  const std::int64_t share = x.size(dim) / group.size();
  STRATA_CHECK_EQ(share * group.size(), x.size(dim), "comm.reduce_scatter");
  const MessageTag tag = group.next_collective();
  const auto part = [&](int rank) { return x.narrow(dim, rank * share, share).contiguous(); };
  for (int peer = 0; peer < group.size(); ++peer)
    if (peer != group.rank()) group.lend(peer, tag, part(peer));
  std::vector<at::Tensor> terms;
  for (int peer = 0; peer < group.size(); ++peer)
    terms.push_back(peer == group.rank() ? part(peer) : group.borrow(peer, tag));
  at::Tensor sum = at::empty(terms[0].sizes(), x.options());
  sum_in_order(terms, sum);
  return sum;
}

ShardedSum ShardedSum::start(Group& group, at::Tensor flat, Shards shards) {
  STRATA_CHECK_EQ(shards.size(), static_cast<std::size_t>(group.size()), "comm.sharded_sum");
  ShardedSum sum;
  sum.group_ = &group;
  sum.tag_ = group.next_collective();
  for (int peer = 0; peer < group.size(); ++peer)
    if (peer != group.rank()) group.lend(peer, sum.tag_, shard_of(flat, shards, peer));
  sum.flat_ = std::move(flat);
  sum.shards_ = std::move(shards);
  return sum;
}

void ShardedSum::finish(const at::Tensor& into, bool accumulate) {
  std::vector<at::Tensor> terms;
  if (accumulate) terms.push_back(into);
  for (int peer = 0; peer < group_->size(); ++peer)
    terms.push_back(peer == group_->rank() ? shard_of(flat_, shards_, peer)
                                           : group_->borrow(peer, tag_));
  flat_.reset();
  sum_in_order(terms, into);
}

ShardedGather ShardedGather::start(Group& group, at::Tensor shard, Shards shards) {
  STRATA_CHECK_EQ(shards.size(), static_cast<std::size_t>(group.size()), "comm.sharded_gather");
  ShardedGather gather;
  gather.group_ = &group;
  gather.tag_ = group.next_collective();
  for (int peer = 0; peer < group.size(); ++peer)
    if (peer != group.rank()) group.lend(peer, gather.tag_, shard);
  gather.shard_ = std::move(shard);
  gather.shards_ = std::move(shards);
  return gather;
}

void ShardedGather::finish(const at::Tensor& flat) {
  for (int peer = 0; peer < group_->size(); ++peer) {
    const at::Tensor target = shard_of(flat, shards_, peer);
    const at::Tensor source = peer == group_->rank() ? shard_ : group_->borrow(peer, tag_);
    if (target.numel() > 0 && target.data_ptr() != source.data_ptr()) target.copy_(source);
  }
  shard_.reset();
}

}  // namespace strata
