// A communicator's buffers are used on a different stream from the one in whose order memory is
// reused. They are kept until the compute stream has been made to wait, also after an error.
#include "strata/comm/exchange.h"

#include <ATen/ops/empty.h>

#include <utility>

namespace strata {

bool by_communicator(Group& group, const at::Tensor& x) {
  return group.rank_device().owns(x) && group.exchange_way() == ExchangeWay::kCommunicator;
}

bool through_host(Group& group, const at::Tensor& x) {
  return group.rank_device().owns(x) && group.exchange_way() == ExchangeWay::kThroughHost;
}

at::Tensor copy_of(RankDevice& device, const at::Tensor& x) {
  if (!device.owns(x)) return x.clone();
  at::Tensor copy = device.ops->empty_like(device.stream, x);
  device.ops->copy(device.stream, copy, x);
  return copy;
}

at::Tensor contiguous(RankDevice& device, const at::Tensor& x) {
  if (!device.owns(x)) return x.contiguous();
  if (x.is_contiguous()) return x;
  at::Tensor dense = device.ops->empty(device.stream, x.sizes(), x.scalar_type());
  device.ops->copy(device.stream, dense, x);
  return dense;
}

at::Tensor empty_on_device_of(RankDevice& device, const at::Tensor& x, at::IntArrayRef sizes) {
  return device.owns(x) ? device.ops->empty(device.stream, sizes, x.scalar_type())
                        : at::empty(sizes, x.options());
}

void copy_to(RankDevice& device, const at::Tensor& to, const at::Tensor& from) {
  device.owns(to) ? device.ops->copy(device.stream, to, from) : void(to.copy_(from));
}

struct InFlight::State {
  State(Stream stream, std::vector<at::Tensor> used)
      : stream(std::move(stream)), used(std::move(used)) {}
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() {
    try {
      stream.wait(done);
    } catch (...) {  // the device has failed: leaking its memory is better than reusing it
      (void)new std::vector<at::Tensor>(std::move(used));
    }
  }

  Stream stream;
  Completion done;
  std::vector<at::Tensor> used;
};

InFlight::InFlight(RankDevice& device, std::vector<at::Tensor> used,
                   const std::function<void(const Stream& stream)>& collective,
                   const Completion& after)
    : state_(std::make_shared<State>(device.stream, std::move(used))) {
  const Completion begun = device.stream.record();
  device.communication.wait(begun);
  device.communication.wait(after);
  try {
    collective(device.communication);
  } catch (...) {
    state_->done = device.communication.record();  // some of it may be in progress
    throw;
  }
  state_->done = device.communication.record();
  if (device.marks) device.marks->collective(begun, state_->done);
}

void InFlight::finish() {
  state_->stream.wait(state_->done);
  state_->done = {};
  state_.reset();
}

namespace {

std::vector<ImportedBuffer> exchange_by_communicator(
    Group& group, const std::function<at::Tensor(int rank)>& part) {
  RankDevice& device = group.rank_device();
  std::vector<Communicator::Part> sends, receives;
  std::vector<at::Tensor> used, all;
  for (int peer = 0; peer < group.size(); ++peer) {
    if (peer == group.rank()) continue;
    used.push_back(sends.emplace_back(peer, part(peer)).tensor);
    group.count_sent(static_cast<std::int64_t>(used.back().nbytes()));
  }
  const at::Tensor own = part(group.rank());
  for (int peer = 0; peer < group.size(); ++peer) {
    all.push_back(peer == group.rank() ? own : device.ops->empty_like(device.stream, own));
    if (peer != group.rank()) receives.push_back({peer, all.back()});
  }
  used.insert(used.end(), all.begin(), all.end());
  Communicator& communicator = group.communicator();
  InFlight(device, std::move(used), [&](const Stream& stream) {
    communicator.exchange(sends, receives, stream);
  }).finish();
  return {all.begin(), all.end()};
}

}  // namespace

std::vector<ImportedBuffer> exchange(Group& group, const at::Tensor& x,
                                     const std::function<at::Tensor(int rank)>& part) {
  if (by_communicator(group, x)) return exchange_by_communicator(group, part);
  const MessageTag tag = group.next_collective();
  for (int peer = 0; peer < group.size(); ++peer)
    if (peer != group.rank()) group.export_buffer(peer, tag, part(peer));
  const at::Tensor own = part(group.rank());
  std::vector<ImportedBuffer> all;
  for (int peer = 0; peer < group.size(); ++peer)
    all.push_back(peer == group.rank() ? ImportedBuffer(own) : group.import_buffer(peer, tag));
  return all;
}

}  // namespace strata
