// Tests that replicas return sums of gradients while the backward of other layers runs.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <mutex>
#include <thread>
#include <vector>

#include "strata/comm/message.h"
#include "strata/comm/rank_cases_test.h"
#include "strata/train/mesh_run_test.h"
#include "strata/train/wrapped_layer_test.h"
#include "strata/transport/faulty_transport.h"

namespace strata {
namespace {

// The groups of ranks in which rank 0 sends tensors, in the order of its messages.
class SentGroups {
 public:
  Faults faults() {
    return {.fate = [this](const Faults::Sent& sent) {
      Frame frame;
      std::memcpy(&frame, sent.header.data(), sizeof frame);
      const std::lock_guard lock(mutex_);
      if (sent.from == 0 && frame.kind == FrameKind::kMessage && frame.has_tensor)
        groups_.push_back(frame.address.group);
      return Faults::Fate::kDeliver;
    }};
  }
  const std::vector<std::uint64_t>& groups() const { return groups_; }

 private:
  std::mutex mutex_;
  std::vector<std::uint64_t> groups_;
};

// A backward computes a recomputed layer again, here for longer than messages travel.
TEST(EarlySums, LeaveBeforeTheLastGradients) {
  for (const TrafficFormat format : {TrafficFormat::kFull, TrafficFormat::kInt8}) {
    MeshCase c;
    c.model = {.layers = 3, .width = 32, .heads = 4, .vocab = 48, .context = 16, .tie = false};
    c.mesh[Axis::kData] = 2;
    c.traffic.gradients = format;
    c.micro_batch = c.mini_batch / 2;
    c.recompute = "full";
    const Sequential model = mesh_model(c);
    constexpr int kSlow = 1;
    const Sequential slow = with_wrapped_layer(model, kSlow, [](std::span<const at::Tensor>) {
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
    });
    const StepPlan plan = mesh_plan(c, slow);
    SentGroups sent;
    FaultyNetwork network(2, sent.faults());
    run_on_two_processes(network, 2, [&](Group& group, MemoryAccount&) {
      Trainer trainer(slow, plan, group, mesh_options(c));
      trainer.initialise();
      trainer.step(mesh_batch(c, 0), 1e-2);
    });
    // A layer's gradients leave in one group, and its part of the sum in another.
    const std::vector<std::uint64_t>& groups = sent.groups();
    ASSERT_EQ(groups.size(), 2u * static_cast<std::size_t>(slow.num_layers()));
    const auto last = std::find(groups.rbegin(), groups.rend(), groups.front()).base();
    const auto sums = std::count_if(groups.begin(), last,
                                    [&](std::uint64_t group) { return group != groups.front(); });
    EXPECT_GE(sums, slow.num_layers() - kSlow - 1) << name_of(format);
  }
}

}  // namespace
}  // namespace strata
