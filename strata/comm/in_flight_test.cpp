// Tests collectives of a communicator that are in progress while the rank does other work.
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <optional>
#include <thread>

#include "strata/comm/collectives.h"
#include "strata/comm/fake_library_test.h"
#include "strata/comm/mailboxes.h"
#include "strata/comm/rank_cases_test.h"

namespace strata {
namespace {

// Between start() and finish() the rank does other work, and the collective completes meanwhile.
TEST(CollectivesInFlight, RunBetweenStartAndFinish) {
  FakeLibrary library;
  DelayedDevices all(15, 0, library);
  run_processes(2, all, [](Group& group) {
    const RankDevice& device = group.rank_device();
    for (const Shards& shards : {Shards{{0, 50}, {50, 100}}, Shards{{0, 70}, {70, 100}}}) {
      const at::Tensor whole = example_values(9, 100);
      const at::Tensor flat = upload(group, at::full({100}, -1.0, host_options(at::kFloat)));
      AllGather gather = AllGather::start(
          group, upload(group, shard_of(whole, shards, group.rank()).clone()), shards, flat);
      device.communication.synchronize();
      const int other = 1 - group.rank();
      EXPECT_TRUE(at::equal(shard_of(flat, shards, other), shard_of(whole, shards, other)));
      EXPECT_TRUE(at::equal(download(group, gather.finish()), whole));
    }
  });
}

// A copy stream fetches the shard (tier/peer_backend.h) after the gather has started.
TEST(CollectivesInFlight, WaitForShardThatIsNotReady) {
  FakeLibrary library;
  for (const Shards& shards : {Shards{{0, 50}, {50, 100}}, Shards{{0, 70}, {70, 100}}}) {
    const auto gather = [&](Group& group) {
      const RankDevice& device = group.rank_device();
      const at::Tensor whole = example_values(9, 100);
      const at::Tensor host = shard_of(whole, shards, group.rank()).clone();
      const at::Tensor shard = upload(group, at::full(host.sizes(), -1.0, host.options()));
      device.stream.synchronize();
      const Stream copy_stream({}, std::make_shared<DelayedQueue>());
      delayed(copy_stream).hold();
      device.ops->copy(copy_stream, shard, host);
      const std::jthread later([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(group.rank() == 0 ? 50 : 10));
        delayed(copy_stream).release();
      });
      AllGather gather = AllGather::start(group, shard, shards, {}, copy_stream.record());
      EXPECT_TRUE(at::equal(download(group, gather.finish()), whole));
    };
    for (const int devices : {1, 2}) {
      DelayedDevices threads(18, devices);
      run_delayed(2, threads, gather);
    }
    DelayedDevices joined(19, 0, library), apart(20);
    run_processes(2, joined, gather);
    run_processes(2, apart, gather);
  }
}

TEST(CollectivesInFlight, OwnTheirBuffers) {
  DelayedDevices all(17);
  run_delayed(1, all, [](Group& group) {
    RankDevice& device = group.rank_device();
    const at::Tensor to = upload(group, at::zeros({50}));
    at::Tensor from = upload(group, example_values(0, 50));
    delayed(device.communication).hold();
    InFlight copy(device, {from},
                  [&](const Stream& stream) { device.ops->copy(stream, to, from); });
    from.reset();
    device.stream.synchronize();  // what was freed is overwritten now
    delayed(device.communication).release();
    copy.finish();
    EXPECT_TRUE(at::equal(download(group, to), example_values(0, 50)));
  });
}

// Some of the work is on the device by then.
TEST(CollectivesInFlight, OwnTheirBuffersAfterError) {
  DelayedDevices all(21);
  run_delayed(1, all, [](Group& group) {
    RankDevice& device = group.rank_device();
    const at::Tensor to = upload(group, at::zeros({50}));
    at::Tensor from = upload(group, example_values(0, 50));
    device.stream.synchronize();
    delayed(device.communication).hold();
    const auto copy_and_fail = [&](const Stream& stream) {
      device.ops->copy(stream, to, from);
      throw Cancelled();
    };
    EXPECT_THROW(InFlight(device, {from}, copy_and_fail), Cancelled);
    from.reset();
    const Completion later = device.stream.record();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_FALSE(later.ready());  // what was freed would be overwritten now
    delayed(device.communication).release();
    EXPECT_TRUE(at::equal(download(group, to), example_values(0, 50)));
  });
}

// They keep their memory until the rank's stream waits for them: at finish or destruction.
TEST(CollectivesInFlight, KeepTheirMemoryWhileInProgress) {
  FakeLibrary library;
  DelayedDevices all(16, 0, library);
  run_processes(2, all, [](Group& group) {
    const RankDevice& device = group.rank_device();
    const Shards shards{{0, 60}, {60, 100}};
    (void)all_gather(group, upload(group, example_values(0, 4)), 0);  // joins
    const auto own = [&] {
      return upload(group, shard_of(example_values(9, 100), shards, group.rank()).clone());
    };
    for (const bool finishes : {true, false}) {
      device.stream.synchronize();
      delayed(device.communication).hold();
      std::optional<AllGather> gather = AllGather::start(group, own(), shards);
      std::optional<ReduceScatter> sum =
          ReduceScatter::start(group, upload(group, example_values(group.rank(), 100)), shards);
      if (finishes) {
        device.stream.synchronize();  // what was freed is overwritten now
        delayed(device.communication).release();
        const at::Tensor into = upload(group, shard_of(at::zeros({100}), shards, group.rank()));
        sum->finish(into);
        EXPECT_TRUE(at::equal(download(group, gather->finish()), example_values(9, 100)));
        EXPECT_TRUE(
            at::equal(download(group, into), shard_of(ordered_sum(2, 100), shards, group.rank())));
      } else {
        gather.reset();
        sum.reset();
        const Completion later = device.stream.record();
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        EXPECT_FALSE(later.ready());
        delayed(device.communication).release();
      }
    }
  });
}

}  // namespace
}  // namespace strata
