// A rank whose device hangs reports it and is named by the ranks that wait for it, on the host or
// on their devices.
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "strata/comm/collectives.h"
#include "strata/comm/device_marks.h"
#include "strata/comm/fake_library_test.h"
#include "strata/comm/mailboxes.h"
#include "strata/comm/rank_cases_test.h"

namespace strata {
namespace {

// The report on rank 1, for any number of seconds.
void expect_named(const std::string& outcome) {
  for (const char* part :
       {"waits for its device for ", " s, at position 17 in backward of micro-batch 4",
        "look at what rank 1 does (errors of its GPU"})
    EXPECT_NE(outcome.find(part), std::string::npos) << outcome;
}

// Blocks the device's queue.
void hang(Group& group) {
  group.report_progress("forward", 16, 4);
  group.report_progress("backward", 17, 4);
  group.rank_device().stream.synchronize();  // forward is done
  delayed(group.rank_device().stream).hold();
  const at::Tensor x = upload(group, example_values(1, 8));
  group.report_progress("gradient", 18, 4);
}

// For a device that hangs until the run has failed, so that the test can end.
void wait_for_device(Group& group) {
  const at::Tensor nothing = at::zeros({1});
  const std::jthread later([&] {
    try {
      while (true) {
        group.before_write(nothing);
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
      }
    } catch (const Cancelled&) {
      delayed(group.rank_device().stream).release();
    }
  });
  group.rank_device().stream.synchronize();
}

std::vector<std::string> outcomes(DelayedDevices& devices,
                                  const std::function<void(Group&)>& function) {
  FaultyNetwork network(2);
  return outcomes_of_processes(
      network, {.ranks = 2, .stall_seconds = 0.2, .stall_fatal_seconds = 4}, devices, function);
}

TEST(HungDevice, IsNamedByItsRankAndByWaitingRanks) {
  DelayedDevices all(31);
  std::atomic<bool> hung = false;
  for (const std::string& outcome : outcomes(all, [&](Group& group) {
         if (group.rank() == 0) {
           while (!hung) std::this_thread::yield();
           group.report_progress("gradient", 18, 4);
           group.receive(1, {});
         }
         hang(group);
         hung = true;
         wait_for_device(group);
       }))
    expect_named(outcome);
}

TEST(HungDevice, IsNamedByRanksWhoseDevicesWaitForIt) {
  FakeLibrary library;
  DelayedDevices all(32, 0, library);
  for (const std::string& outcome : outcomes(all, [](Group& group) {
         at::Tensor x = upload(group, example_values(group.rank(), 100));
         all_reduce_sum(group, x);
         if (group.rank() == 1) hang(group);
         group.report_progress("reduction", 20, 4);
         all_reduce_sum(group, x);
         group.report_progress("update", 21);
         wait_for_device(group);
         group.barrier();
       }))
    expect_named(outcome);
}

TEST(DeviceMarks, ReportOldestIncompleteWork) {
  const auto queue = std::make_shared<DelayedQueue>();
  DeviceMarks marks(Stream({}, queue));
  const auto look = [&] {
    RankProgress progress;
    marks.look(progress);
    return progress.device;
  };
  marks.report_progress("forward", 1, 0);
  queue->synchronize();
  EXPECT_EQ(look().seconds, 0);
  queue->hold();
  for (int i = 0; i < 3; ++i) marks.report_progress("backward", 2 + i, i);
  EXPECT_STREQ(look().what, "forward");
  EXPECT_EQ(look().position, 1);
  EXPECT_GT(look().seconds, 0);
  queue->release();
  queue->synchronize();
  EXPECT_EQ(look().seconds, 0);
}

// A device with a full queue: a rank that enqueues more waits until the device continues.
class FullQueue final : public StreamQueue {
 public:
  explicit FullQueue(std::shared_future<void> resumes) : resumes_(std::move(resumes)) {}
  Completion record(EventTime) override {
    if (recorded_++ > 0) resumes_.wait();
    return Completion(std::make_shared<Mark>(resumes_));
  }
  void wait(const Completion&) override {}
  void synchronize() override { resumes_.wait(); }
  void copy(void*, const void*, std::size_t) override {}
  void* native() override { return nullptr; }

 private:
  class Mark final : public DeviceEvent {
   public:
    explicit Mark(std::shared_future<void> resumes) : resumes_(std::move(resumes)) {}
    bool ready() const override {
      return resumes_.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
    }
    void wait() const override { resumes_.wait(); }
    const DeviceEvent* on_device() const override { return this; }

   private:
    std::shared_future<void> resumes_;
  };

  std::shared_future<void> resumes_;
  int recorded_ = 0;
};

TEST(DeviceMarks, AreReadWhileDeviceQueueIsFull) {
  std::promise<void> resumes;
  DeviceMarks marks(Stream({}, std::make_shared<FullQueue>(resumes.get_future().share())));
  marks.report_progress("backward", 1, 0);
  const std::jthread rank([&] { marks.report_progress("gradient", 2, 0); });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  auto looked = std::async(std::launch::async, [&] {
    RankProgress progress;
    marks.look(progress);
    return progress.device.seconds;
  });
  EXPECT_EQ(looked.wait_for(std::chrono::seconds(5)), std::future_status::ready);
  resumes.set_value();
  EXPECT_GT(looked.get(), 0);
}

}  // namespace
}  // namespace strata
