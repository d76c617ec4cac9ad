// Tests training whose weights, gradients and optimizer states live on the host: the same bits as
// in memory, within a budget that the whole model exceeds.
#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <random>

#include "strata/base/errors.h"
#include "strata/checkpoint/named_state.h"
#include "strata/comm/ranks.h"
#include "strata/train/mesh_run_test.h"

namespace strata {
namespace {

constexpr LayerTiers kZeroOffload{Tier::kDevice, Tier::kHost, Tier::kHost};
constexpr LayerTiers kStatesOnHost{Tier::kDevice, Tier::kDevice, Tier::kHost};
constexpr LayerTiers kAllOnHost{Tier::kHost, Tier::kHost, Tier::kHost};

void expect_same_bits_offloaded(MeshCase c) {
  MeshCase in_memory = c;
  in_memory.tiers = {};
  SCOPED_TRACE(c);
  expect_same_bits(train_on_mesh(c), train_on_mesh(in_memory));
}

TEST(Offload, EveryPlacementTrainsSameBits) {
  for (const bool tie : {true, false}) {
    for (const LayerTiers tiers : {kZeroOffload, kStatesOnHost, kAllOnHost}) {
      MeshCase c = small_mesh_case({}, 0, tie);
      c.tiers = tiers;
      expect_same_bits_offloaded(c);
      c.precision = at::kBFloat16;
      expect_same_bits_offloaded(c);
    }
  }
}

TEST(Offload, EveryWindowAndRecomputeTrainsSameBits) {
  for (const int window : {1, 2, 4, 100}) {
    for (const char* recompute : {"none", "full"}) {
      for (const std::int64_t micro_batch : {2, 8}) {
        MeshCase c = small_mesh_case();
        c.tiers = kAllOnHost;
        c.window = window;
        c.recompute = recompute;
        c.micro_batch = micro_batch;
        expect_same_bits_offloaded(c);
      }
    }
  }
}

TEST(Offload, LayerwiseAccumulationTrainsSameBits) {
  MeshCase c = small_mesh_case();
  c.schedule = ScheduleKind::kVertical;
  for (const int window : {1, 3}) {
    c.tiers = kAllOnHost;
    c.window = window;
    expect_same_bits_offloaded(c);
    MeshCase horizontal = small_mesh_case();
    expect_same_bits(train_on_mesh(c), train_on_mesh(horizontal));
  }
}

TEST(Offload, UpdatesAtOnceTrainSameBits) {
  for (const bool tie : {true, false}) {
    for (const LayerTiers tiers : {kZeroOffload, kAllOnHost}) {
      MeshCase c = small_mesh_case({}, 0, tie);
      c.clip = 0;
      c.tiers = tiers;
      c.updates_at_once = true;
      for (const int buffers : {0, 1, 2, 3}) {
        c.gradient_buffers = buffers;
        expect_same_bits_offloaded(c);
      }
    }
  }
}

TEST(Offload, OffloadedActivationsTrainSameBits) {
  for (LayerTiers tiers : {LayerTiers{}, kAllOnHost}) {
    tiers.activations = Tier::kHost;
    for (const ScheduleKind schedule :
         {ScheduleKind::kGpipe, ScheduleKind::k1f1b, ScheduleKind::kVertical}) {
      for (const char* recompute : {"full", "mixed", "none"}) {
        MeshCase c =
            small_mesh_case({{Axis::kPipeline, schedule == ScheduleKind::kVertical ? 1 : 2}});
        c.tiers = tiers;
        c.schedule = schedule;
        c.recompute = recompute;
        expect_same_bits_offloaded(c);
        c.some_activations = true;
        if (c.recompute == "full") expect_same_bits_offloaded(c);
      }
    }
    MeshCase c = small_mesh_case({{Axis::kData, 2}, {Axis::kTensor, 2}}, 3, false);
    c.tiers = tiers;
    c.micro_batch = 3;  // the last one is smaller
    c.precision = at::kBFloat16;
    expect_same_bits_offloaded(c);
  }
}

TEST(Offload, StagesReplicasAndTensorRanksTrainSameBits) {
  for (const LayerTiers tiers : {kZeroOffload, kAllOnHost}) {
    for (const bool tie : {true, false}) {
      MeshCase c = small_mesh_case({{Axis::kPipeline, 2}}, 0, tie);
      c.tiers = tiers;
      expect_same_bits_offloaded(c);
    }
    for (const int zero : {0, 1, 2, 3}) {
      MeshCase c = small_mesh_case({{Axis::kPipeline, 2}, {Axis::kData, 2}}, zero, zero == 1);
      c.tiers = tiers;
      expect_same_bits_offloaded(c);
      c.reduce_each = zero >= 2;
      if (c.reduce_each) expect_same_bits_offloaded(c);
    }
    MeshCase c =
        small_mesh_case({{Axis::kPipeline, 1}, {Axis::kData, 2}, {Axis::kTensor, 2}}, 3, false);
    c.tiers = tiers;
    expect_same_bits_offloaded(c);
  }
}

// Mesh, schedule, placement and window are random.
TEST(Offload, FortyRandomMeshesTrainSameBits) {
  constexpr LayerTiers kPlacements[] = {kZeroOffload, kStatesOnHost, kAllOnHost};
  std::mt19937 random(9);
  for (int i = 0; i < 40; ++i) {
    const MeshCase c = random_tiers_case(random, kPlacements);
    expect_same_bits_offloaded(c);
    if (HasFailure()) return;
  }
}

// Peak bytes of the device from the second step on, and of the host.
struct Peaks {
  std::int64_t device = 0;
  std::int64_t host = 0;
};

Peaks peaks_of(const MeshCase& c, const ThreadRanksOptions& ranks = {},
               const std::function<void(TrainerOptions&)>& change = {}) {
  const Sequential model = mesh_model(c);
  const StepPlan plan = mesh_plan(c, model);
  TrainerOptions options = mesh_options(c);
  if (change) change(options);
  Peaks peaks;
  run_thread_ranks(ranks, [&](Group& group, MemoryAccount& account) {
    Trainer trainer(model, plan, group, options);
    trainer.initialise();
    for (int step = 0; step < c.steps; ++step) trainer.step(mesh_batch(c, step), 1e-2);
    peaks = {account.peak_bytes(), trainer.offload_use().host_peak_bytes};
  });
  return peaks;
}

TEST(Offload, TrainsModelOfTenTimesBudget) {
  MeshCase c = deep_mesh_case();
  const Sequential model = mesh_model(c);
  std::int64_t state_bytes = 0;
  for (int layer = 0; layer < model.num_layers(); ++layer)
    state_bytes += 16 * model.layout(layer).own_numel;
  c.tiers = kAllOnHost;
  c.window = 1;
  const std::int64_t budget = state_bytes / 10;
  const Peaks peaks = peaks_of(c, {.device_bytes = budget});
  EXPECT_LE(peaks.device, budget);
  EXPECT_GE(peaks.host, state_bytes);
  EXPECT_LE(peaks.host, state_bytes + state_bytes / 100);  // nothing is rounded up
}

// 12 bytes per parameter instead of 16: a gradient exists only until its layer is updated.
TEST(Offload, ConsumedGradientsShareTwoBuffers) {
  MeshCase c = deep_mesh_case();
  c.clip = 0;
  c.tiers = kAllOnHost;
  c.updates_at_once = true;
  const Sequential model = mesh_model(c);
  std::int64_t state_bytes = 0, largest = 0;
  for (int layer = 0; layer < model.num_layers(); ++layer) {
    const std::int64_t numel = model.layout(layer).own_numel;
    state_bytes += 12 * numel;
    largest = std::max(largest, 4 * numel);
  }
  c.gradient_buffers = 2;
  const std::int64_t host = peaks_of(c).host;
  EXPECT_GE(host, state_bytes + 2 * largest);
  EXPECT_LE(host, state_bytes + 2 * largest + state_bytes / 100);
}

// The device keeps only those inputs of 24 layers that are in transit.
TEST(Offload, OffloadedActivationsLeaveDevice) {
  MeshCase c = deep_mesh_case();
  c.model.context = 64;
  c.mini_batch = c.micro_batch = 8;
  c.tiers = kAllOnHost;
  const Peaks kept = peaks_of(c);
  c.tiers.activations = Tier::kHost;
  const Peaks away = peaks_of(c);
  const std::int64_t input = 4 * c.model.width * c.model.context * c.micro_batch;
  EXPECT_LE(away.device, kept.device - (c.model.layers - 4) * input);
  EXPECT_GE(away.host, kept.host + (c.model.layers - 4) * input);
  EXPECT_LE(away.host, kept.host + 2 * c.model.layers * input);
}

TEST(Offload, HostBudgetRejectsOneByteTooMany) {
  MeshCase c = deep_mesh_case();
  c.tiers = kAllOnHost;
  const Peaks peaks = peaks_of(c);
  const auto with = [&](std::int64_t bytes) {
    return peaks_of(c, {}, [&](TrainerOptions& options) { options.host_bytes = bytes; });
  };
  EXPECT_NO_THROW(with(peaks.host));
  try {
    with(peaks.host - 64);
    FAIL() << "nothing was refused";
  } catch (const SystemError& error) {
    EXPECT_NE(error.text().fix.find("memory.host"), std::string::npos) << error.text().fix;
  }
}

TEST(Offload, SlowLinkChangesNoBits) {
  MeshCase c = small_mesh_case({}, 0, false);
  c.tiers = kAllOnHost;
  const auto slow_link = [](TrainerOptions& options) {
    options.link = {.bytes_per_second = 100e6, .latency_seconds = 1e-3};
  };
  expect_same_bits(train_on_mesh(c, slow_link), train_on_mesh(c));
  c.tiers.activations = Tier::kHost;
  c.recompute = "full";
  expect_same_bits(train_on_mesh(c, slow_link), train_on_mesh(c));
}

TEST(Offload, StatesAndGradientsAreReadInTheirTier) {
  MeshCase c = small_mesh_case({}, 0, false);
  c.clip = 0;
  std::map<std::string, at::Tensor> slots[2], gradients[2], weights[2];
  for (const bool offloaded : {false, true}) {
    if (offloaded) c.tiers = kAllOnHost;
    c.updates_at_once = offloaded;
    const Sequential model = mesh_model(c);
    const StepPlan plan = mesh_plan(c, model);
    run_thread_ranks({}, [&](Group& group, MemoryAccount&) {
      Trainer trainer(model, plan, group, mesh_options(c));
      trainer.initialise();
      trainer.step(mesh_batch(c, 0), 1e-2);
      trainer.gradient_step(mesh_batch(c, 1));  // no update
      assemble(trainer.owned_slots(), slots[offloaded]);
      assemble(trainer.owned_gradients(), gradients[offloaded]);
      EXPECT_GT(trainer.evaluate({mesh_batch(c, 2)}), 0);
      assemble(trainer.owned_weights(), weights[offloaded]);
    });
  }
  for (const auto& [name, slot] : slots[0]) EXPECT_TRUE(slot.equal(slots[1].at(name))) << name;
  for (const auto& [name, gradient] : gradients[0])
    EXPECT_TRUE(gradient.equal(gradients[1].at(name))) << name;
  for (const auto& [name, weight] : weights[0])
    EXPECT_TRUE(weight.equal(weights[1].at(name))) << name;
}

}  // namespace
}  // namespace strata
