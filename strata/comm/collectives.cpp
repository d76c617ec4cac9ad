// Every sum is taken in rank order by whoever needs it, from buffers that the others export;
// nothing is summed on the way, as in a ring, so the bits do not depend on timing or on how ranks
// are spread over processes. Sums of 16-bit floats are kept in fp32 until the last term.
//
// An exported buffer is read later than it is exported. Hence the rule for callers (collectives.h)
// and three ways to sum: a copy for small tensors, a sum of its own for middling ones, in place
// with a barrier for large ones.
//
// On a device the same happens in the order of streams. A reader ends its loan before it says that it
// has read, so that whoever hears of it finds the loan ended and its own stream waits for the reading.
#include "strata/comm/collectives.h"

#include <ATen/Dispatch.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/maximum.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <memory>
#include <utility>

#include "strata/base/errors.h"

namespace strata {
namespace {

constexpr std::int64_t kSmall = 1 << 13;   // elements: below, one round of whole tensors is faster
constexpr std::int64_t kCut = 16;          // elements: where tensors are cut among ranks
constexpr std::size_t kInPlace = 1 << 22;  // bytes: above, memory is worth more than a barrier
constexpr std::int64_t kBlock = 1 << 17;   // bytes summed at a time, in L2: few system calls
constexpr std::int64_t kShortRow = 1 << 14;  // bytes: shorter ones are not worth a system call each

// out = terms[0] + terms[1] + ..., each element in that order, for the next out.numel() of each;
// out may be one of the terms.
template <typename T>
void sum_in_order(std::vector<ImportedChunks>& terms, T* out, std::int64_t numel) {
  using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;
  constexpr std::int64_t kElements = kBlock / static_cast<std::int64_t>(sizeof(T));
  static_assert(kChunkElements % kElements == 0);
  const auto most = static_cast<std::size_t>(std::min(kElements, numel));
  const auto buffer = std::make_unique_for_overwrite<T[]>(most);
  const auto sum = std::make_unique_for_overwrite<Wide[]>(most);
  for (std::int64_t begin = 0; begin < numel; begin += kElements) {
    const std::int64_t count = std::min(kElements, numel - begin);
    const auto next = [&](ImportedChunks& term) {
      constexpr at::ScalarType kType = c10::CppTypeToScalarType<T>::value;
      return static_cast<const T*>(term.next(count, kType, buffer.get()));
    };
    const T* first = next(terms[0]);
    for (std::int64_t i = 0; i < count; ++i) sum[i] = static_cast<Wide>(first[i]);
    for (std::size_t t = 1; t < terms.size(); ++t) {
      const T* term = next(terms[t]);
      for (std::int64_t i = 0; i < count; ++i) sum[i] += static_cast<Wide>(term[i]);
    }
    for (std::int64_t i = 0; i < count; ++i) out[begin + i] = static_cast<T>(sum[i]);
  }
}

void sum_in_order(std::vector<ImportedChunks>& terms, const at::Tensor& out) {
  STRATA_CHECK(out.is_contiguous(), "comm.sum");
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kBFloat16, at::kHalf, out.scalar_type(), "sum_in_order", [&] {
    sum_in_order<scalar_t>(terms, out.data_ptr<scalar_t>(), out.numel());
  });
}

void sum_on_device(Group& group, std::vector<ImportedChunks>& terms, const at::Tensor& out) {
  if (out.numel() == 0) return;
  RankDevice& device = group.rank_device();
  std::vector<at::Tensor> tensors;
  for (ImportedChunks& term : terms) {
    STRATA_CHECK_EQ(term.numel(), out.numel(), "comm.sum");
    tensors.push_back(term.whole(out.scalar_type()));
  }
  group.before_write(out);  // who sends his term has read what he was lent before
  device.ops->sum_in_order(device.stream, tensors, out);
}

void sum_in_order(Group& group, const std::vector<ImportedBuffer>& imported,
                  const at::Tensor& out) {
  std::vector<ImportedChunks> terms;
  for (const ImportedBuffer& term : imported) {
    STRATA_CHECK_EQ(term.numel(), out.numel(), "comm.sum");
    terms.emplace_back(term);
  }
  group.rank_device().owns(out) ? sum_on_device(group, terms, out) : sum_in_order(terms, out);
}

void max_of(RankDevice& device, const std::vector<ImportedBuffer>& terms, const at::Tensor& out) {
  if (device.owns(out)) {
    const std::vector<at::Tensor> tensors(terms.begin(), terms.end());
    return device.ops->max_of(device.stream, tensors, out);
  }
  at::Tensor most = terms[0].tensor();
  for (std::size_t i = 1; i < terms.size(); ++i) most = at::maximum(most, terms[i].tensor());
  out.copy_(most);
}

at::Tensor copy_of(RankDevice& device, const at::Tensor& x) {
  if (!device.owns(x)) return x.clone();
  at::Tensor copy = device.ops->empty_like(device.stream, x);
  device.ops->copy(device.stream, copy, x);
  return copy;
}

void copy_to(RankDevice& device, const at::Tensor& to, const at::Tensor& from) {
  device.owns(to) ? device.ops->copy(device.stream, to, from) : void(to.copy_(from));
}

at::Tensor contiguous(RankDevice& device, const at::Tensor& x) {
  if (!device.owns(x)) return x.contiguous();
  if (x.is_contiguous()) return x;
  at::Tensor dense = device.ops->empty(device.stream, x.sizes(), x.scalar_type());
  device.ops->copy(device.stream, dense, x);
  return dense;
}

bool by_communicator(Group& group, const at::Tensor& x) {
  return group.rank_device().owns(x) && group.exchange_way() == ExchangeWay::kCommunicator;
}

// Between processes without a communicator.
bool through_host(Group& group, const at::Tensor& x) {
  return group.rank_device().owns(x) && group.exchange_way() == ExchangeWay::kThroughHost;
}

bool sums_natively(Group& group, const at::Tensor& x) {
  return group.rank_device().reduction == Reduction::kNative && by_communicator(group, x);
}

// Runs `collective` on the communication stream, between what the rank has given to its own and what it
// will.
template <typename Collective>
void communicate(RankDevice& device, const Collective& collective) {
  device.communication.wait(device.stream.record());
  collective(device.communication);
  device.stream.wait(device.communication.record());
}

Shards even_shards(std::int64_t numel, int ranks) {
  const std::int64_t size = (numel / kCut + ranks - 1) / ranks * kCut;
  Shards shards;
  for (int rank = 0; rank < ranks; ++rank) {
    const std::int64_t end = rank + 1 == ranks ? numel : std::min((rank + 1) * size, numel);
    shards.push_back({std::min(rank * size, numel), end});
  }
  return shards;
}

at::Tensor shard_of(const at::Tensor& flat, const Shards& shards, int rank) {
  return flat.narrow(0, shards[rank].begin, shards[rank].size());
}

// Sends each rank its part and returns what each has sent, own one included, in rank order.
std::vector<ImportedBuffer> exchange_by_communicator(Group& group,
                                                     const std::vector<at::Tensor>& parts) {
  RankDevice& device = group.rank_device();
  std::vector<Communicator::Part> sends, receives;
  std::vector<ImportedBuffer> all;
  for (int peer = 0; peer < group.size(); ++peer) {
    const at::Tensor& part = parts[static_cast<std::size_t>(peer)];
    if (peer == group.rank()) {
      all.emplace_back(part);
      continue;
    }
    sends.push_back({peer, part});
    receives.push_back({peer, device.ops->empty_like(
                                  device.stream, parts[static_cast<std::size_t>(group.rank())])});
    all.emplace_back(receives.back().tensor);
  }
  Communicator& communicator = group.communicator();
  communicate(device,
              [&](const Stream& stream) { communicator.exchange(sends, receives, stream); });
  return all;
}

// Every rank's tensor, own one included, in rank order.
std::vector<ImportedBuffer> exchange(Group& group, const at::Tensor& x) {
  if (by_communicator(group, x))
    return exchange_by_communicator(
        group, std::vector<at::Tensor>(static_cast<std::size_t>(group.size()), x));
  const MessageTag tag = group.next_collective();
  for (int peer = 0; peer < group.size(); ++peer)
    if (peer != group.rank()) group.export_buffer(peer, tag, x);
  std::vector<ImportedBuffer> all;
  for (int peer = 0; peer < group.size(); ++peer)
    all.push_back(peer == group.rank() ? ImportedBuffer(x) : group.import_buffer(peer, tag));
  return all;
}

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

}  // namespace

// Shards are read where they are, so whole: chunks would only be more launches.
void all_reduce_on_device(Group& group, at::Tensor& x) {
  RankDevice& device = group.rank_device();
  const at::Tensor flat = x.view(-1);
  if (sums_natively(group, x)) {
    Communicator& communicator = group.communicator();
    return communicate(device,
                       [&](const Stream& stream) { communicator.all_reduce_sum(flat, stream); });
  }
  if (x.numel() <= kSmall) return sum_in_order(group, exchange(group, copy_of(device, flat)), flat);
  const Shards shards = even_shards(flat.numel(), group.size());
  const at::Tensor own = shard_of(flat, shards, group.rank());
  const bool in_place = x.nbytes() >= kInPlace;
  const at::Tensor sum = in_place ? own : device.ops->empty_like(device.stream, own);
  ReduceScatter::start(group, flat, shards).finish(sum);
  AllGather::start(group, sum, shards).finish(flat);
  if (!in_place) return;
  group.barrier();
  group.before_write(own);
}

namespace {

// Performs a collective on a copy in host memory; one that returns nothing changes x.
template <typename Collective>
auto on_host(Group& group, const at::Tensor& x, const Collective& collective) {
  RankDevice& device = group.rank_device();
  at::Tensor host = device.on_host(x);
  if constexpr (std::is_void_v<decltype(collective(host))>) {
    collective(host);
    device.copy_to_device(x, host);
  } else {
    return device.on_device(collective(host));
  }
}

}  // namespace

void all_reduce_sum(Group& group, at::Tensor& x) {
  if (group.size() == 1) return;
  STRATA_CHECK(x.is_contiguous(), "comm.all_reduce_sum");
  if (through_host(group, x))
    return on_host(group, x, [&](at::Tensor& host) { all_reduce_sum(group, host); });
  if (group.rank_device().owns(x)) return all_reduce_on_device(group, x);
  // The others may still read what was exported when the caller writes to x: small tensors export a copy,
  // middling ones a sum of their own. Large ones are summed in place, where until then nobody else
  // reads, and the ranks wait for each other.
  if (x.numel() <= kSmall) return sum_in_order(group, exchange(group, x.clone()), x.view(-1));
  const at::Tensor flat = x.view(-1);
  const Shards shards = even_shards(flat.numel(), group.size());
  const at::Tensor own = shard_of(flat, shards, group.rank());
  const bool in_place = x.nbytes() >= kInPlace;
  const at::Tensor sum = in_place ? own : at::empty_like(own);
  ReduceScatter summing = ReduceScatter::start(group, flat, shards);
  AllGather gathering = AllGather::prepare(group, sum, shards);
  for (std::int64_t begin = 0; begin < sum.numel(); begin += kChunkElements) {
    const std::int64_t end = std::min(begin + kChunkElements, sum.numel());
    sum_in_order(summing.terms_, sum.narrow(0, begin, end - begin));
    gathering.export_part(begin, end);  // on its way while the next is summed
  }
  summing.terms_.clear();  // releases the others' memory before waiting for them
  gathering.finish(flat);
  if (in_place) group.barrier();
}

void all_reduce_max(Group& group, at::Tensor& x) {
  if (group.size() == 1) return;
  if (through_host(group, x))
    return on_host(group, x, [&](at::Tensor& host) { all_reduce_max(group, host); });
  RankDevice& device = group.rank_device();
  max_of(device, exchange(group, copy_of(device, x)), x);
}

at::Tensor all_gather(Group& group, const at::Tensor& x, int dim) {
  if (group.size() == 1) return x;
  if (through_host(group, x))
    return on_host(group, contiguous(group.rank_device(), x),
                   [&](at::Tensor& host) { return all_gather(group, host, dim); });
  RankDevice& device = group.rank_device();
  const std::vector<ImportedBuffer> parts = exchange(group, contiguous(device, x));
  at::DimVector sizes(x.sizes());
  sizes[static_cast<std::size_t>(dim)] *= group.size();
  if (device.owns(x)) {
    const at::Tensor whole = device.ops->empty(device.stream, sizes, x.scalar_type());
    for (int peer = 0; peer < group.size(); ++peer)
      device.ops->copy(device.stream, whole.narrow(dim, peer * x.size(dim), x.size(dim)),
                       parts[static_cast<std::size_t>(peer)].tensor().view(x.sizes()));
    return whole;
  }
  at::Tensor whole = at::empty(sizes, x.options());
  for (int peer = 0; peer < group.size(); ++peer) {
    const ImportedBuffer& part = parts[static_cast<std::size_t>(peer)];
    STRATA_CHECK(part.numel() == x.numel() && part.dtype() == x.scalar_type(), "comm.all_gather");
    place(part, whole, dim, peer, group.size());
  }
  return whole;
}

at::Tensor reduce_scatter(Group& group, const at::Tensor& x, int dim) {
  if (group.size() == 1) return x;
  const std::int64_t size = x.size(dim) / group.size();
  STRATA_CHECK_EQ(size * group.size(), x.size(dim), "comm.reduce_scatter");
  RankDevice& device = group.rank_device();
  if (through_host(group, x))
    return on_host(group, contiguous(device, x),
                   [&](at::Tensor& host) { return reduce_scatter(group, host, dim); });
  const auto part = [&](int rank) { return contiguous(device, x.narrow(dim, rank * size, size)); };
  if (by_communicator(group, x)) {
    std::vector<at::Tensor> parts;
    for (int peer = 0; peer < group.size(); ++peer) parts.push_back(part(peer));
    at::Tensor sum = device.ops->empty_like(device.stream, parts[0]);
    sum_in_order(group, exchange_by_communicator(group, parts), sum);
    return sum;
  }
  const MessageTag tag = group.next_collective();
  for (int peer = 0; peer < group.size(); ++peer)
    if (peer != group.rank()) group.export_buffer(peer, tag, part(peer));
  const at::Tensor own = part(group.rank());
  std::vector<ImportedBuffer> terms;
  for (int peer = 0; peer < group.size(); ++peer)
    terms.push_back(peer == group.rank() ? ImportedBuffer(own) : group.import_buffer(peer, tag));
  at::Tensor sum = device.owns(x) ? device.ops->empty_like(device.stream, own)
                                  : at::empty(own.sizes(), x.options());
  sum_in_order(group, terms, sum);
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

// Of every rank's shard that is this rank's, or of their sum, if the communicator makes it.
void ReduceScatter::start_by_communicator(const at::Tensor& flat, const Shards& shards) {
  RankDevice& device = group_->rank_device();
  Communicator& communicator = group_->communicator();
  flat_ = flat;  // until it was sent
  const at::Tensor own = shard_of(flat, shards, group_->rank());
  device.communication.wait(device.stream.record());
  if (sums_natively(*group_, flat)) {
    const at::Tensor sum = device.ops->empty_like(device.stream, own);
    communicator.reduce_scatter_sum(flat, shards, sum, device.communication);
    terms_.emplace_back(ImportedBuffer(sum));
  } else {
    std::vector<Communicator::Part> sends, receives;
    for (int peer = 0; peer < group_->size(); ++peer) {
      if (peer == group_->rank()) {
        terms_.emplace_back(ImportedBuffer(own));
        continue;
      }
      const at::Tensor theirs = device.ops->empty_like(device.stream, own);
      if (const at::Tensor part = shard_of(flat, shards, peer); part.numel() > 0)
        sends.push_back({peer, part});
      if (own.numel() > 0) receives.push_back({peer, theirs});
      terms_.emplace_back(ImportedBuffer(theirs));
    }
    communicator.exchange(sends, receives, device.communication);
  }
  received_ = device.communication.record();
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
    device.stream.wait(received_);
    device.owns(into) ? sum_on_device(*group_, terms_, into) : sum_in_order(terms_, into);
  }
  terms_.clear();
  flat_.reset();
}

AllGather AllGather::prepare(Group& group, at::Tensor shard, Shards shards) {
  STRATA_CHECK_EQ(shards.size(), static_cast<std::size_t>(group.size()), "comm.all_gather");
  AllGather gather;
  gather.group_ = &group;
  gather.tag_ = group.next_collective();
  gather.shard_ = std::move(shard);
  gather.shards_ = std::move(shards);
  gather.through_host_ = through_host(group, gather.shard_);
  if (gather.through_host_) gather.shard_ = group.rank_device().on_host(gather.shard_);
  return gather;
}

void AllGather::export_part(std::int64_t begin, std::int64_t end) {
  for (int peer = 0; peer < group_->size(); ++peer)
    if (peer != group_->rank()) export_chunks(*group_, peer, tag_, shard_, begin, end);
}

AllGather AllGather::start(Group& group, at::Tensor shard, Shards shards) {
  AllGather gather = prepare(group, std::move(shard), std::move(shards));
  if (by_communicator(group, gather.shard_))
    gather.ready_ = group.rank_device().stream.record();
  else
    gather.export_part(0, gather.shard_.numel());
  return gather;
}

void AllGather::finish(const at::Tensor& flat) {
  RankDevice& device = group_->rank_device();
  const bool on_device = device.owns(flat);
  const at::Tensor whole = through_host_ ? device.ops->host_empty_like(flat) : flat;
  const at::Tensor own = shard_of(whole, shards_, group_->rank());
  if (on_device && !through_host_ && by_communicator(*group_, flat))
    return finish_by_communicator(flat, own);
  if (own.numel() > 0 && own.const_data_ptr() != shard_.const_data_ptr())
    copy_to(device, own, shard_);
  for (int peer = 0; peer < group_->size(); ++peer) {
    if (peer == group_->rank()) continue;
    const at::Tensor theirs = shard_of(whole, shards_, peer);
    ImportedChunks part(*group_, peer, tag_, theirs.numel());
    if (!on_device || through_host_) {
      part.read_rest(flat.scalar_type(), theirs.data_ptr());
    } else if (theirs.numel() > 0) {
      const at::Tensor from = part.whole(flat.scalar_type());  // and with it whatever it has read
      group_->before_write(theirs);
      device.ops->copy(device.stream, theirs, from);
    }
  }
  if (through_host_) device.copy_to_device(flat, whole);
  shard_.reset();
}

void AllGather::finish_by_communicator(const at::Tensor& flat, const at::Tensor& own) {
  RankDevice& device = group_->rank_device();
  Communicator& communicator = group_->communicator();
  device.communication.wait(ready_);
  device.communication.wait(
      device.stream.record());  // the memory of `flat` may have had another use
  if (flat.numel() > 0 && are_even(shards_)) {
    communicator.all_gather(shard_, flat, device.communication);
  } else {
    std::vector<Communicator::Part> sends, receives;
    for (int peer = 0; peer < group_->size(); ++peer) {
      if (peer == group_->rank()) continue;
      if (own.numel() > 0) sends.push_back({peer, shard_});
      if (const at::Tensor theirs = shard_of(flat, shards_, peer); theirs.numel() > 0)
        receives.push_back({peer, theirs});
    }
    communicator.exchange(sends, receives, device.communication);
    if (own.numel() > 0 && own.const_data_ptr() != shard_.const_data_ptr())
      device.ops->copy(device.stream, own, shard_);
  }
  device.stream.wait(device.communication.record());
  shard_.reset();
}

namespace {

constexpr char kDone = '+', kFailed = '-';  // in front of a result or an error

// Exceptions that aren't std::exception, such as a cancelled wait, go on.
std::string outcome_of(const std::function<std::string()>& action) {
  try {
    return kDone + action();
  } catch (const std::exception& error) {
    return kFailed + encode_error(to_error(error));
  }
}

}  // namespace

std::vector<std::string> gather(Group& group, const std::function<std::string()>& action) {
  const std::string outcome = outcome_of(action);
  const MessageTag up = group.next_collective(), down = group.next_collective();
  std::string reply(1, kDone);
  std::vector<std::string> results;
  if (group.rank() != 0) {
    group.send(0, up, byte_tensor(outcome));
    reply = text_of(group.receive(0, down));
  } else {
    for (int rank = 0; rank < group.size(); ++rank) {
      std::string theirs = rank == 0 ? outcome : text_of(group.receive(rank, up));
      if (theirs[0] == kFailed && reply[0] == kDone) reply = theirs;
      results.push_back(theirs.substr(1));
    }
    for (int rank = 1; rank < group.size(); ++rank) group.send(rank, down, byte_tensor(reply));
  }
  if (reply[0] == kFailed) throw_error(decode_error(reply.substr(1)));
  return results;
}

void run_on_all(Group& group, const std::function<void()>& action) {
  gather(group, [&] {
    action();
    return std::string();
  });
}

}  // namespace strata
