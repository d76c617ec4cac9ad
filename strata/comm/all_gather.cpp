// A communicator writes the gathered data while the rank continues, so it must know the destination
// at the start. All other ways write when the rank waits.
#include <algorithm>
#include <utility>

#include "strata/base/errors.h"
#include "strata/comm/collectives.h"
#include "strata/comm/exchange.h"

namespace strata {
namespace {

constexpr std::int64_t kShortRow = 1 << 14;  // bytes: shorter ones are not worth a system call each

// Copies the buffer to part `index` of `whole` along `dim`: row by row, as it lies there.
void place(const ImportedBuffer& part, const at::Tensor& whole, int dim, int index, int parts) {
  const std::int64_t pitch = c10::multiply_integers(whole.sizes().slice(dim)), row = pitch / parts;
  const auto row_bytes = row * static_cast<std::int64_t>(whole.element_size());
  if (!part.data() && part.numel() > row && row_bytes < kShortRow)
    return place(ImportedBuffer(part.tensor()), whole, dim, index, parts);
  auto* to = static_cast<char*>(whole.data_ptr()) + index * row_bytes;
  for (std::int64_t begin = 0; begin < part.numel(); begin += row, to += parts * row_bytes)
    part.read(begin, row, to);
}

std::int64_t numel_of(const Shards& shards) {
  std::int64_t numel = 0;
  for (const FlatRange& shard : shards) numel = std::max(numel, shard.end);
  return numel;
}

}  // namespace

at::Tensor all_gather(Group& group, const at::Tensor& x, int dim) {
  if (group.size() == 1) return x;
  RankDevice& device = group.rank_device();
  if (through_host(group, x))
    return on_host(group, contiguous(device, x),
                   [&](at::Tensor& host) { return all_gather(group, host, dim); });
  const at::Tensor own = contiguous(device, x);
  const std::vector<ImportedBuffer> parts = exchange(group, own, [&](int) { return own; });
  at::DimVector sizes(x.sizes());
  sizes[static_cast<std::size_t>(dim)] *= group.size();
  const at::Tensor whole = empty_on_device_of(device, x, sizes);
  for (int peer = 0; peer < group.size(); ++peer) {
    const ImportedBuffer& part = parts[static_cast<std::size_t>(peer)];
    STRATA_CHECK(part.numel() == x.numel() && part.dtype() == x.scalar_type(), "comm.all_gather");
    if (!device.owns(x)) {
      place(part, whole, dim, peer, group.size());
    } else {
      copy_to(device, whole.narrow(dim, peer * x.size(dim), x.size(dim)),
              part.tensor().view(x.sizes()));
    }
  }
  return whole;
}

AllGather AllGather::prepare(Group& group, const MessageTag& tag, at::Tensor shard, Shards shards,
                             at::Tensor flat) {
  STRATA_CHECK_EQ(shards.size(), static_cast<std::size_t>(group.size()), "comm.all_gather");
  AllGather gather;
  gather.group_ = &group;
  gather.tag_ = tag;
  gather.shard_ = std::move(shard);
  gather.flat_ = std::move(flat);
  gather.shards_ = std::move(shards);
  return gather;
}

AllGather AllGather::start(Group& group, at::Tensor shard, Shards shards, at::Tensor flat,
                           Completion ready) {
  return start(group, group.next_collective(), std::move(shard), std::move(shards), std::move(flat),
               std::move(ready));
}

AllGather AllGather::start(Group& group, const MessageTag& tag, at::Tensor shard, Shards shards,
                           at::Tensor flat, Completion ready) {
  AllGather gather = prepare(group, tag, std::move(shard), std::move(shards), std::move(flat));
  gather.ready_ = std::move(ready);
  if (by_communicator(group, gather.shard_)) {
    gather.start_by_communicator();
    return gather;
  }
  gather.through_host_ = through_host(group, gather.shard_);
  if (gather.through_host_) {
    group.rank_device().stream.wait(gather.ready_);
    gather.host_ = group.rank_device().on_host(gather.shard_);
  }
  gather.export_part(0, gather.shard_.numel());
  return gather;
}

void AllGather::export_part(std::int64_t begin, std::int64_t end) {
  for (int peer = 0; peer < group_->size(); ++peer)
    if (peer != group_->rank())
      export_chunks(*group_, peer, tag_, through_host_ ? host_ : shard_, begin, end, ready_);
}

void AllGather::start_by_communicator() {
  RankDevice& device = group_->rank_device();
  Communicator& communicator = group_->communicator();
  make_flat();
  group_->count_sent(static_cast<std::int64_t>(shard_.nbytes()) * (group_->size() - 1));
  if (are_even(shards_) && flat_.numel() > 0) {
    in_flight_ = InFlight(
        device, {shard_, flat_},
        [&](const Stream& stream) { communicator.all_gather(shard_, flat_, stream); }, ready_);
    return;
  }
  std::vector<Communicator::Part> sends, receives;
  for (int peer = 0; peer < group_->size(); ++peer) {
    if (peer == group_->rank()) continue;
    sends.push_back({peer, shard_});
    receives.push_back({peer, shard_of(flat_, shards_, peer)});
  }
  in_flight_ = InFlight(
      device, {shard_, flat_},
      [&](const Stream& stream) { communicator.exchange(sends, receives, stream); }, ready_);
}

void AllGather::make_flat() {
  if (!flat_.defined())
    flat_ = empty_on_device_of(group_->rank_device(), shard_, {numel_of(shards_)});
}

void AllGather::place_own(const at::Tensor& whole, const at::Tensor& shard) {
  const at::Tensor own = shard_of(whole, shards_, group_->rank());
  if (own.numel() > 0 && own.const_data_ptr() != shard.const_data_ptr())
    copy_to(group_->rank_device(), own, shard);
}

at::Tensor AllGather::finish() {
  if (in_flight_) {
    in_flight_.finish();
    if (!are_even(shards_)) place_own(flat_, shard_);
    shard_.reset();
    return std::move(flat_);
  }
  RankDevice& device = group_->rank_device();
  device.stream.wait(ready_);
  make_flat();
  const at::Tensor whole = through_host_ ? device.ops->host_empty_like(flat_) : flat_;
  place_own(whole, through_host_ ? host_ : shard_);
  for (int peer = 0; peer < group_->size(); ++peer) {
    if (peer == group_->rank()) continue;
    const at::Tensor theirs = shard_of(whole, shards_, peer);
    ImportedChunks part(*group_, peer, tag_, theirs.numel());
    if (!device.owns(whole)) {
      part.read_rest(whole.scalar_type(), theirs.data_ptr());
    } else if (theirs.numel() > 0) {
      // includes everything read so far
      const at::Tensor from = part.whole(whole.scalar_type());
      group_->before_write(theirs);
      copy_to(device, theirs, from);
    }
  }
  if (through_host_) device.copy_to_device(flat_, whole);
  shard_.reset();
  host_.reset();
  return std::move(flat_);
}

}  // namespace strata
