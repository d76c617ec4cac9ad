/// Gives ranks devices that work behind their back (device/delayed_stream_test.h), for the tests of
/// collectives; and a communicator for them, which meets as NCCL does.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/full.h>
#include <ATen/ops/maximum.h>
#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "strata/comm/communicator.h"
#include "strata/comm/group.h"
#include "strata/comm/rank_device.h"
#include "strata/comm/stream_ops.h"
#include "strata/device/delayed_stream_test.h"

namespace strata {

inline DelayedQueue& delayed(const Stream& stream) {
  return static_cast<DelayedQueue&>(*stream.queue());
}

/// fp32 alone, by address, as kernels.
class DelayedOps final : public StreamOps {
 public:
  bool owns(const at::Tensor& x) const override { return DelayedQueue::owns(x); }
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

/// Joins ranks of this test's processes: each call meets the others on the streams, as NCCL's do.
class FakeCommunicators final : public CommunicatorBackend {
 public:
  /// What the ranks did, by name of the call.
  int calls(const std::string& name) const {
    const std::lock_guard lock(mutex_);
    const auto found = calls_.find(name);
    return found == calls_.end() ? 0 : found->second;
  }
  int ids() const { return ids_; }
  /// Ranks of one device, which NCCL refuses.
  std::function<std::uint64_t(Device)> id_of = [](Device device) {
    return static_cast<std::uint64_t>(device.index);
  };

  bool present() const override { return true; }
  std::uint64_t device_id(Device device) const override { return id_of(device); }
  std::string unique_id() const override { return "meeting " + std::to_string(ids_++); }
  std::unique_ptr<Communicator> join(const std::string& id, int rank, int size, Device,
                                     std::function<bool()>) const override {
    const std::lock_guard lock(mutex_);
    std::shared_ptr<Meeting>& meeting = meetings_[id];
    if (!meeting) meeting = std::make_shared<Meeting>(size);
    EXPECT_TRUE(meeting->joined.insert({rank, size}).second) << "joined twice";
    return std::make_unique<Joined>(*this, meeting, rank);
  }

 private:
  // One call of all ranks: each brings what it sends, and takes what it receives when all are there.
  struct Meeting {
    explicit Meeting(int size) : size(size) {}
    const int size;
    std::map<int, int> joined;
    std::mutex mutex;
    std::condition_variable changed;
    struct Call {
      int arrived = 0, left = 0;
      std::map<std::pair<int, int>, at::Tensor> sent;  // from, to
    };
    std::map<int, Call> calls;

    void meet(int number, int rank, const std::vector<std::pair<int, at::Tensor>>& sends,
              const std::function<void(Call&)>& receive) {
      std::unique_lock lock(mutex);
      Call& call = calls[number];
      for (const auto& [to, tensor] : sends) call.sent[{rank, to}] = tensor.clone();
      if (++call.arrived == size) changed.notify_all();
      changed.wait(lock, [&] { return call.arrived == size; });
      receive(call);
      ++call.left;
    }
  };

  class Joined final : public Communicator {
   public:
    Joined(const FakeCommunicators& all, std::shared_ptr<Meeting> meeting, int rank)
        : all_(all), meeting_(std::move(meeting)), rank_(rank) {}

    void exchange(std::span<const Part> sends, std::span<const Part> receives,
                  const Stream& stream) override {
      perform("exchange", sends, receives, stream, false);
    }
    void all_gather(const at::Tensor& shard, const at::Tensor& flat,
                    const Stream& stream) override {
      std::vector<Part> sends, receives;
      for (int rank = 0; rank < meeting_->size; ++rank) {
        sends.push_back({rank, shard});
        receives.push_back({rank, flat.narrow(0, rank * shard.numel(), shard.numel())});
      }
      perform("all_gather", sends, receives, stream, false);
    }
    // From the last rank to the first: another order than the ranks'.
    void all_reduce_sum(const at::Tensor& x, const Stream& stream) override {
      std::vector<Part> sends, receives;
      for (int rank = meeting_->size; rank-- > 0;) {
        sends.push_back({rank, x});
        receives.push_back({rank, x});
      }
      perform("all_reduce_sum", sends, receives, stream, true);
    }
    void reduce_scatter_sum(const at::Tensor& flat, std::span<const FlatRange> shards,
                            const at::Tensor& own, const Stream& stream) override {
      std::vector<Part> sends, receives;
      for (int rank = meeting_->size; rank-- > 0;) {
        const FlatRange shard = shards[static_cast<std::size_t>(rank)];
        sends.push_back({rank, flat.narrow(0, shard.begin, shard.size())});
        receives.push_back({rank, own});
      }
      perform("reduce_scatter_sum", sends, receives, stream, true);
    }

   private:
    struct Address {
      int rank;
      void* at;
      std::int64_t numel;
      at::Tensor tensor() const { return at::from_blob(at, {numel}, host_options(at::kFloat)); }
    };
    static std::vector<Address> addresses(std::span<const Part> parts) {
      std::vector<Address> all;
      for (const Part& part : parts) {
        EXPECT_TRUE(part.tensor.is_contiguous() &&
                    (part.tensor.numel() == 0 || DelayedQueue::owns(part.tensor)));
        all.push_back({part.rank, part.tensor.data_ptr(), part.tensor.numel()});
      }
      return all;
    }
    void perform(const std::string& name, std::span<const Part> sends,
                 std::span<const Part> receives, const Stream& stream, bool sum) {
      {
        const std::lock_guard lock(all_.mutex_);
        ++all_.calls_[name];
      }
      delayed(stream).give([meeting = meeting_, rank = rank_, number = calls_++,
                            sends = addresses(sends), receives = addresses(receives), sum] {
        std::vector<std::pair<int, at::Tensor>> sent;
        for (const Address& part : sends) sent.emplace_back(part.rank, part.tensor());
        meeting->meet(number, rank, sent, [&](Meeting::Call& call) {
          bool first = true;
          for (const Address& part : receives) {
            const auto found = call.sent.find({part.rank, rank});
            ASSERT_NE(found, call.sent.end()) << "rank " << part.rank << " sent nothing";
            ASSERT_EQ(found->second.numel(), part.numel);
            sum && !first ? part.tensor().add_(found->second) : part.tensor().copy_(found->second);
            first = false;
          }
        });
      });
    }

    const FakeCommunicators& all_;
    std::shared_ptr<Meeting> meeting_;
    int rank_, calls_ = 0;
  };

  mutable std::mutex mutex_;
  mutable std::map<std::string, int> calls_;
  mutable std::map<std::string, std::shared_ptr<Meeting>> meetings_;
  mutable std::atomic<int> ids_ = 0;
};

/// Rank's devices: of `devices` that ranks share in turn, or one each (0).
class DelayedDevices {
 public:
  explicit DelayedDevices(std::uint64_t seed, int devices = 0,
                          const CommunicatorBackend& backend = nccl_backend(),
                          Reduction reduction = Reduction::kOrdered)
      : seed_(seed), devices_(devices), backend_(backend), reduction_(reduction) {}

  std::shared_ptr<RankDevice> of(int rank) {
    const std::lock_guard lock(mutex_);
    const Device device{DeviceKind::kCpu, devices_ > 0 ? rank % devices_ : rank};
    std::shared_ptr<StreamQueue>& queue = queues_[device.index];
    if (!queue) queue = std::make_shared<DelayedQueue>(seed_ * 100 + device.index);
    return std::make_shared<RankDevice>(
        Stream(device, queue),
        Stream(device, std::make_shared<DelayedQueue>(seed_ * 100 + 50 + rank)), &delayed_ops(),
        backend_, reduction_);
  }

 private:
  std::uint64_t seed_;
  int devices_;
  const CommunicatorBackend& backend_;
  Reduction reduction_;
  std::mutex mutex_;
  std::map<int, std::shared_ptr<StreamQueue>> queues_;
};

/// On the rank's device, when its stream gets there.
inline at::Tensor upload(Group& group, const at::Tensor& host) {
  RankDevice& device = group.rank_device();
  at::Tensor x = device.ops->empty(device.stream, host.sizes(), host.scalar_type());
  device.ops->copy(device.stream, x, host);
  // The queue knows addresses alone.
  delayed(device.stream).give([host] {});
  return x;
}

/// Its values, when the rank's stream has got there.
inline at::Tensor download(Group& group, const at::Tensor& x) {
  return group.rank_device().on_host(x);
}

}  // namespace strata
