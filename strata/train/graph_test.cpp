// A recorded step has the bits of a performed one. On a CPU a recording repeats the actions under
// the restrictions of a device's recording: it sees inputs, tables and numbers of the step where
// they were recorded.
#include <gtest/gtest.h>

#include <mutex>
#include <set>
#include <stdexcept>

#include "strata/base/errors.h"
#include "strata/comm/ranks.h"
#include "strata/device/timed_queue_test.h"
#include "strata/pipeline/recorded_machine.h"
#include "strata/train/mesh_run_test.h"

namespace strata {
namespace {

void recorded(TrainerOptions& options) { options.graph.mode = GraphMode::kOn; }

// Two steps are performed, one is recorded, two are replayed.
void expect_recorded_is_performed(MeshCase c) {
  c.steps = 5;
  const MeshRecord performed = train_on_mesh(c);
  const MeshRecord replayed = train_on_mesh(c, recorded);
  EXPECT_EQ(performed.replayed, 0) << c;
  EXPECT_GT(replayed.replayed, 0) << c;
  expect_same_bits(replayed, performed);
  if (testing::Test::HasFailure()) FAIL() << c;
}

TEST(Graph, ReplaysEqualPerformedStepsForEveryScheduleAndRecompute) {
  for (const ScheduleKind schedule :
       {ScheduleKind::kGpipe, ScheduleKind::kVertical, ScheduleKind::k1f1b,
        ScheduleKind::kInterleaved, ScheduleKind::kZbH1, ScheduleKind::kZbv})
    for (const char* recompute : {"none", "cheap", "mixed", "full"})
      for (const Mesh mesh : {Mesh{}, Mesh{{Axis::kPipeline, 2}}}) {
        MeshCase c = small_mesh_case(mesh);
        c.model.layers = 4;
        c.schedule = schedule;
        c.recompute = recompute;
        if (schedule == ScheduleKind::kInterleaved && mesh[Axis::kPipeline] == 1) continue;
        expect_recorded_is_performed(c);
      }
}

TEST(Graph, ReplaysEqualPerformedStepsForReplicas) {
  for (const int zero : {0, 1})
    for (const Mesh mesh : {Mesh{{Axis::kData, 2}}, Mesh{{Axis::kPipeline, 2}, {Axis::kData, 2}}})
      for (const bool tie : {false, true}) {
        MeshCase c = small_mesh_case(mesh, zero, tie);
        c.schedule = mesh[Axis::kPipeline] > 1 ? ScheduleKind::k1f1b : ScheduleKind::kGpipe;
        expect_recorded_is_performed(c);
      }
}

TEST(Graph, ReplaysEqualPerformedStepsInEveryPrecision) {
  for (const at::ScalarType precision : {at::kBFloat16, at::kHalf}) {
    MeshCase c = small_mesh_case({{Axis::kPipeline, 2}});
    c.precision = precision;
    expect_recorded_is_performed(c);
  }
}

// Layers fetched from the host are performed, the others are recorded.
TEST(Graph, ReplaysEqualPerformedStepsWithWindow) {
  const LayerTiers host{.weights = Tier::kHost, .gradients = Tier::kHost, .states = Tier::kHost};
  const LayerTiers offload{.gradients = Tier::kHost, .states = Tier::kHost};
  const LayerTiers activations{.activations = Tier::kHost};
  for (const LayerTiers& tiers : {host, offload, activations})
    for (const int window : {1, 2})
      for (const int pp : {1, 2}) {
        MeshCase c = small_mesh_case({{Axis::kPipeline, pp}}, 0, /*tie=*/false);
        c.model.layers = 5;
        c.recompute = "full";
        c.tiers = tiers;
        c.window = window;
        c.some_layers = true;
        expect_recorded_is_performed(c);
      }
}

// Steps of two sizes, and the loss of other samples in between; each has its own recording.
MeshRecord train_in_turns(const MeshCase& c, const GraphOptions& graph) {
  const Sequential model = mesh_model(c);
  const StepPlan plan = mesh_plan(c, model);
  MeshRecord record;
  std::mutex mutex;
  run_thread_ranks({.ranks = c.mesh.size()}, [&](Group& group, MemoryAccount&) {
    TrainerOptions options = mesh_options(c);
    options.graph = graph;
    Trainer trainer(model, plan, group, options);
    trainer.initialise();
    for (int step = 0; step < 12; ++step) {
      MeshCase other = c;
      if (step % 2 == 1) other.mini_batch = c.mini_batch - 1;
      const double loss = trainer.step(mesh_batch(other, step), 1e-2 / (1 + step)).loss;
      const double evaluated =
          trainer.evaluate({mesh_batch(c, 100 + step), mesh_batch(c, 200 + step)});
      if (group.rank() > 0) continue;
      record.losses.push_back(loss);
      record.losses.push_back(evaluated);
    }
    const std::lock_guard lock(mutex);
    record.replayed += trainer.recorded_use().replayed;
    for (const int layer : trainer.layers()) {
      assemble(trainer.owned_weights(layer), record.weights);
      assemble(trainer.owned_slots(layer), record.slots);
    }
  });
  return record;
}

TEST(Graph, ShortBatchAndEvaluationHaveOwnRecordings) {
  for (const int pp : {1, 2}) {
    const MeshCase c = small_mesh_case({{Axis::kPipeline, pp}});
    const MeshRecord performed = train_in_turns(c, {.mode = GraphMode::kOff});
    const MeshRecord replayed = train_in_turns(c, {.mode = GraphMode::kOn});
    EXPECT_GT(replayed.replayed, 0);
    expect_same_bits(replayed, performed);
  }
}

// Device events are recorded for every layer and update of a performed step, and for one pair per
// repeated segment; none is inside a recording, and no call waits for the device.
TEST(Graph, SegmentIsOneEventPairOfDevice) {
  const MeshCase c = small_mesh_case();
  const Sequential model = mesh_model(c);
  const StepPlan plan = mesh_plan(c, model);
  run_thread_ranks({.ranks = 1}, [&](Group& group, MemoryAccount&) {
    TrainerOptions options = mesh_options(c);
    recorded(options);
    Trainer trainer(model, plan, group, options);
    const auto queue = std::make_shared<TimedQueue>();
    trainer.trace_device(Stream({}, queue));
    trainer.initialise();
    std::size_t performed = 0;
    for (int step = 0; step < 5; ++step) {
      trainer.step(mesh_batch(c, step), 1e-2);
      EXPECT_TRUE(trainer.take_tracks().empty());
      queue->perform();
      const std::vector<TrackEvent> tracks = trainer.take_tracks();
      for (const TrackEvent& event : tracks) EXPECT_EQ(event.track, TrackKind::kCompute);
      if (step == 0) {
        performed = tracks.size();
        std::set<int> layers;
        for (const TrackEvent& event : tracks) layers.insert(event.layer);
        EXPECT_EQ(layers.size(), static_cast<std::size_t>(model.num_layers()) + 1);  // and the norm
        EXPECT_GE(performed, 3u * static_cast<std::size_t>(model.num_layers()));
      }
      EXPECT_EQ(tracks.size(), step < 2 ? performed : 1u) << "step " << step;
    }
    EXPECT_EQ(trainer.recorded_use().replayed, 2);
  });
}

TEST(Graph, AutoRecordsNothingOnCpu) {
  MeshCase c = small_mesh_case();
  c.steps = 4;
  EXPECT_EQ(train_on_mesh(c).replayed, 0);
}

TEST(Graph, OnRejectsUnrecordableStepAndNamesAction) {
  MeshCase c = small_mesh_case({{Axis::kTensor, 2}});
  try {
    train_on_mesh(c, recorded);
    FAIL() << "was not refused";
  } catch (const UserError& error) {
    EXPECT_EQ(error.text().operation, "pipeline.record");
    EXPECT_NE(error.text().where.find("F s0 m0"), std::string::npos) << error.what();
    EXPECT_NE(error.text().what.find("exchange messages"), std::string::npos) << error.what();
  }
}

// It performs the steps without checking again.
TEST(Graph, AutoReportsOnceWhyStepCannotBeRecorded) {
  MeshCase c = small_mesh_case({}, 0, /*tie=*/false);
  c.tiers = {.weights = Tier::kHost, .gradients = Tier::kHost, .states = Tier::kHost};
  c.steps = 5;
  std::vector<std::string> reported;
  const MeshRecord performed = train_on_mesh(c, [&](TrainerOptions& options) {
    options.graph = {.on_every_device = true,
                     .report = [&](const std::string& text) { reported.push_back(text); }};
  });
  ASSERT_EQ(reported.size(), 1u);
  EXPECT_NE(reported[0].find("steps are not recorded: F s0 m0"), std::string::npos) << reported[0];
  EXPECT_NE(reported[0].find("come from elsewhere"), std::string::npos) << reported[0];
  EXPECT_EQ(performed.replayed, 0);
  expect_same_bits(performed, train_on_mesh(c));
}

TEST(Graph, OnRejectsRanksThatShareDevice) {
  MeshCase c = small_mesh_case();
  EXPECT_THROW(train_on_mesh(c,
                             [](TrainerOptions& options) {
                               options.graph = {.mode = GraphMode::kOn, .shares_device = true};
                             }),
               UserError);
}

// A device that rejects a call while it records; no work was done.
class FailingRecording final : public Recording {
 public:
  void record(std::function<void()>) override { throw std::runtime_error("may not be recorded"); }
  void replay() override { FAIL() << "was never recorded"; }
};

TEST(Graph, AutoPerformsWhatCannotBeRecordedAndReportsOnce) {
  MeshCase c = small_mesh_case();
  c.steps = 5;
  std::vector<std::string> reported;
  const MeshRecord abandoned = train_on_mesh(c, [&](TrainerOptions& options) {
    options.graph = {.on_every_device = true,
                     .report = [&](const std::string& text) { reported.push_back(text); },
                     .make_recording = [](Device) { return std::make_unique<FailingRecording>(); }};
  });
  ASSERT_EQ(reported.size(), 1u);
  EXPECT_NE(reported[0].find("may not be recorded"), std::string::npos) << reported[0];
  expect_same_bits(abandoned, train_on_mesh(c));
  try {
    train_on_mesh(c, [&](TrainerOptions& options) {
      options.graph = {.mode = GraphMode::kOn, .make_recording = [](Device) {
                         return std::make_unique<FailingRecording>();
                       }};
    });
    FAIL() << "was not refused";
  } catch (const UserError& error) {
    EXPECT_EQ(error.text().fix, "set train.graph=off");
    EXPECT_EQ(error.text().got, "may not be recorded");
  }
}

}  // namespace
}  // namespace strata
