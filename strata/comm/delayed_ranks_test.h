/// Gives ranks devices that run asynchronously (device/delayed_stream_test.h), for the tests of
/// collectives.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/full.h>
#include <ATen/ops/maximum.h>
#include <gtest/gtest.h>

#include <chrono>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "strata/comm/collective_library.h"
#include "strata/comm/group.h"
#include "strata/comm/rank_device.h"
#include "strata/comm/ranks.h"
#include "strata/comm/stream_ops.h"
#include "strata/device/delayed_stream_test.h"
#include "strata/transport/faulty_transport.h"

namespace strata {

inline DelayedQueue& delayed(const Stream& stream) {
  return static_cast<DelayedQueue&>(*stream.queue());
}

/// fp32 only, by address, like kernels.
class DelayedOps final : public StreamOps {
 public:
  // A tensor without elements has no address; in these tests it belongs to the device.
  bool owns(const at::Tensor& x) const override { return x.numel() == 0 || DelayedQueue::owns(x); }
  at::Tensor empty(const Stream& stream, at::IntArrayRef sizes,
                   at::ScalarType dtype) const override {
    return delayed(stream).empty(sizes, dtype);
  }
  at::Tensor host_empty(at::IntArrayRef sizes, at::ScalarType dtype) const override {
    return at::full(sizes, -1, host_options(dtype));
  }
  void copy(const Stream& stream, const at::Tensor& to, const at::Tensor& from) const override {
    ASSERT_EQ(to.sizes(), from.sizes());
    delayed(stream).give([to = view(to), from = view(from)] { to().copy_(from()); });
  }
  void sum_in_order(const Stream& stream, std::span<const at::Tensor> terms,
                    const at::Tensor& out) const override {
    std::vector<View> views;
    for (const at::Tensor& term : terms) {
      ASSERT_EQ(term.numel(), out.numel());
      views.push_back(view(term.view(-1)));
    }
    delayed(stream).give([views, out = view(out.view(-1))] {
      at::Tensor sum = views[0]().clone();
      for (std::size_t i = 1; i < views.size(); ++i) sum = sum + views[i]();
      out().copy_(sum);
    });
  }
  void max_of(const Stream& stream, std::span<const at::Tensor> terms,
              const at::Tensor& out) const override {
    std::vector<View> views;
    for (const at::Tensor& term : terms) views.push_back(view(term));
    delayed(stream).give([views, out = view(out)] {
      at::Tensor most = views[0]().clone();
      for (const View& term : views) most = at::maximum(most, term());
      out().copy_(most);
    });
  }

 private:
  // The tensor at an address, which it doesn't own.
  using View = std::function<at::Tensor()>;
  static View view(const at::Tensor& x) {
    return [address = x.data_ptr(), sizes = x.sizes().vec(), strides = x.strides().vec(),
            dtype = x.scalar_type()] {
      return at::from_blob(address, sizes, strides, host_options(dtype));
    };
  }
};

inline const DelayedOps& delayed_ops() {
  static const DelayedOps ops;
  return ops;
}

/// The ranks' devices: `devices` shared round robin, or one each (0).
class DelayedDevices {
 public:
  explicit DelayedDevices(std::uint64_t seed, int devices = 0,
                          const CollectiveLibrary& library = nccl_library(),
                          Reduction reduction = Reduction::kOrdered)
      : seed_(seed), devices_(devices), library_(library), reduction_(reduction) {}

  std::shared_ptr<RankDevice> of(int rank) {
    const std::lock_guard lock(mutex_);
    const Device device{DeviceKind::kCpu, devices_ > 0 ? rank % devices_ : rank};
    std::shared_ptr<StreamQueue>& queue = queues_[device.index];
    if (!queue) queue = std::make_shared<DelayedQueue>(seed_ * 100 + device.index);
    return std::make_shared<RankDevice>(
        Stream(device, queue),
        Stream(device, std::make_shared<DelayedQueue>(seed_ * 100 + 50 + rank)), &delayed_ops(),
        library_, reduction_);
  }

 private:
  std::uint64_t seed_;
  int devices_;
  const CollectiveLibrary& library_;
  Reduction reduction_;
  std::mutex mutex_;
  std::map<int, std::shared_ptr<StreamQueue>> queues_;
};

/// Writes to x in stream order.
inline void upload_to(Group& group, const at::Tensor& x, const at::Tensor& host) {
  RankDevice& device = group.rank_device();
  device.ops->copy(device.stream, x, host);
  delayed(device.stream).give([host] {});  // the queue stores addresses only
}

/// Copies to the rank's device in stream order.
inline at::Tensor upload(Group& group, const at::Tensor& host) {
  RankDevice& device = group.rank_device();
  const at::Tensor x = device.ops->empty(device.stream, host.sizes(), host.scalar_type());
  upload_to(group, x, host);
  return x;
}

/// Returns the values after the stream's earlier work.
inline at::Tensor download(Group& group, const at::Tensor& x) {
  return group.rank_device().on_host(x);
}

/// Writes to x at once, as the next micro-batch would.
inline void overwrite(Group& group, const at::Tensor& x) {
  upload_to(group, x, at::full(x.sizes(), -5.0, host_options(at::kFloat)));
}

/// As threads of one process.
inline void run_delayed(int ranks, DelayedDevices& devices,
                        const std::function<void(Group&)>& function) {
  run_ranks({.ranks = ranks,
             .stall_seconds = 0,
             .rank_device = [&](int rank) { return devices.of(rank); },
             .rendezvous = Rendezvous{}},
            [&](Group& group, MemoryAccount&) { function(group); });
}

/// Runs ranks as threads of two processes; returns the error with which each process ends, "" if
/// none.
inline std::vector<std::string> outcomes_of_processes(FaultyNetwork& network, RanksOptions options,
                                                      DelayedDevices& devices,
                                                      const std::function<void(Group&)>& function) {
  std::vector<std::string> outcomes(2);
  std::vector<std::jthread> threads;
  options.rank_device = [&](int rank) { return devices.of(rank); };
  options.connect = [&](const Rendezvous& rendezvous) {
    return network.transport(rendezvous.process);
  };
  for (int process = 0; process < 2; ++process)
    threads.emplace_back([&, process, options]() mutable {
      options.rendezvous = Rendezvous{.process = process, .processes = 2};
      try {
        run_ranks(options, [&](Group& group, MemoryAccount&) { function(group); });
      } catch (const std::exception& error) {
        outcomes[static_cast<std::size_t>(process)] = error.what();
      }
    });
  threads.clear();
  return outcomes;
}

/// Processes that end well, over a network that delays and reorders.
inline void run_processes(int ranks, DelayedDevices& devices,
                          const std::function<void(Group&)>& function, bool reads_in_place = true) {
  FaultyNetwork network(2, {.seed = 3,
                            .most_delay = std::chrono::microseconds(300),
                            .reorder = true,
                            .reads_in_place = reads_in_place});
  for (const std::string& outcome :
       outcomes_of_processes(network, {.ranks = ranks}, devices, function))
    EXPECT_EQ(outcome, "");
}

}  // namespace strata
