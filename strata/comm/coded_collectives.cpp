#include "strata/comm/coded_collectives.h"

#include "strata/base/errors.h"

namespace strata {
namespace {

CodedExchange exchange_of(Group& group, const MessageTag& tag, Shards shards,
                          const BlockCode& code) {
  STRATA_CHECK_EQ(shards.size(), static_cast<std::size_t>(group.size()), "comm.coded_exchange");
  return {&group, tag, std::move(shards), &code, {}};
}

// Calls f(shard, code) in rank order with the ranks' codes, and forgets this rank's. Those of
// others are read where they are.
template <typename F>
void for_each_code(CodedExchange& exchange, F f) {
  Group& group = *exchange.group;
  for (int rank = 0; rank < group.size(); ++rank)
    f(exchange.shards[static_cast<std::size_t>(rank)],
      rank == group.rank() ? std::move(exchange.own)
                           : group.import_buffer(rank, exchange.tag).tensor());
}

}  // namespace

CodedSum CodedSum::start(Group& group, const at::Tensor& flat, Shards shards,
                         const BlockCode& code) {
  CodedExchange exchange = exchange_of(group, group.next_collective(), std::move(shards), code);
  for (int peer = 0; peer < group.size(); ++peer) {
    const FlatRange shard = exchange.shards[static_cast<std::size_t>(peer)];
    at::Tensor packed = code.encode(flat.narrow(0, shard.begin, shard.size()), shard);
    if (peer == group.rank()) {
      exchange.own = std::move(packed);
    } else {
      group.export_buffer(peer, exchange.tag, std::move(packed));
    }
  }
  return CodedSum(std::move(exchange));
}

bool CodedSum::has_arrived() const {
  const Group& group = *exchange_.group;
  for (int peer = 0; peer < group.size(); ++peer)
    if (peer != group.rank() && !group.has_arrived(peer, exchange_.tag)) return false;
  return true;
}

void CodedSum::finish(const at::Tensor& into, bool accumulate) {
  const FlatRange own = exchange_.shards[static_cast<std::size_t>(exchange_.group->rank())];
  if (!accumulate) into.zero_();
  for_each_code(exchange_, [&](FlatRange, const at::Tensor& packed) {
    exchange_.code->add(packed, own, into);
  });
}

CodedGather CodedGather::start(Group& group, const at::Tensor& shard, Shards shards,
                               const BlockCode& code) {
  return start(group, group.next_collective(), shard, std::move(shards), code);
}

CodedGather CodedGather::start(Group& group, const MessageTag& tag, const at::Tensor& shard,
                               Shards shards, const BlockCode& code) {
  CodedExchange exchange = exchange_of(group, tag, std::move(shards), code);
  exchange.own = code.encode(shard, exchange.shards[static_cast<std::size_t>(group.rank())]);
  for (int peer = 0; peer < group.size(); ++peer)
    if (peer != group.rank()) group.export_buffer(peer, exchange.tag, exchange.own);
  return CodedGather(std::move(exchange));
}

void CodedGather::finish(const at::Tensor& flat, std::int64_t begin) {
  for_each_code(exchange_, [&](FlatRange shard, const at::Tensor& packed) {
    exchange_.code->decode(packed, shard, flat.narrow(0, shard.begin - begin, shard.size()));
  });
}

}  // namespace strata
