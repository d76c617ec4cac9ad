// Tests how events of ranks and their tracks reach rank 0.
#include "strata/train/measurements.h"

#include <gtest/gtest.h>

#include <utility>

#include "strata/comm/ranks.h"
#include "strata/train/mesh_run_test.h"

namespace strata {
namespace {

TEST(GatherSteps, CollectsEventsAndTracksOfEveryRankOnFirst) {
  std::vector<MeasuredStep> gathered;
  run_thread_ranks({.ranks = 3}, [&](Group& group, MemoryAccount&) {
    const double rank = group.rank();
    std::vector<MeasuredStep> steps;
    for (int step = 0; step < 2; ++step) {
      MeasuredStep own;
      own.ranks = {std::vector<TraceEvent>(group.rank() + step,
                                           {Op::kBackward, 1, 2, 3, rank + 0.25, rank + 0.5})};
      own.tracks = {{}};
      if (group.rank() > 0) own.tracks[0] = {{TrackKind::kDiskWrite, step, rank, rank + 0.125}};
      steps.push_back(own);
    }
    gather_steps(group, steps);
    if (group.rank() == 0) gathered = steps;
  });
  ASSERT_EQ(gathered.size(), 2u);
  for (int step = 0; step < 2; ++step) {
    ASSERT_EQ(gathered[step].ranks.size(), 3u);
    ASSERT_EQ(gathered[step].tracks.size(), 3u);
    EXPECT_TRUE(gathered[step].tracks[0].empty());
    for (int rank = 1; rank < 3; ++rank) {
      ASSERT_EQ(gathered[step].ranks[rank].size(), static_cast<std::size_t>(rank + step));
      EXPECT_EQ(gathered[step].ranks[rank][0].op, Op::kBackward);
      EXPECT_EQ(gathered[step].ranks[rank][0].end_seconds, rank + 0.5);
      ASSERT_EQ(gathered[step].tracks[rank].size(), 1u);
      const TrackEvent& event = gathered[step].tracks[rank][0];
      EXPECT_EQ(event.track, TrackKind::kDiskWrite);
      EXPECT_EQ(event.layer, step);
      EXPECT_EQ(event.begin_seconds, rank);
      EXPECT_EQ(event.end_seconds, rank + 0.125);
    }
  }
}

// An update starts in its own step and ends in the next, which records it.
TEST(TracksDuring, IncludesEventsOfAllStepsCutToOneStep) {
  const std::vector<MeasuredStep> steps{
      {10, 20, {{}}, {{{TrackKind::kToDevice, 1, 8, 12}, {TrackKind::kToHost, 2, 14, 15}}}},
      {20, 30, {{}}, {{{TrackKind::kUpdate, 3, 18, 23}, {TrackKind::kToHost, 4, 24, 25}}}}};
  const std::vector<TrackEvent> first = tracks_during(steps, 0, 0);
  ASSERT_EQ(first.size(), 3u);
  EXPECT_EQ(first[0].begin_seconds, 10);
  EXPECT_EQ(first[0].end_seconds, 12);
  EXPECT_EQ(first[1].layer, 2);
  EXPECT_EQ(first[2].layer, 3);
  EXPECT_EQ(first[2].end_seconds, 20);
  const std::vector<TrackEvent> second = tracks_during(steps, 1, 0);
  ASSERT_EQ(second.size(), 2u);
  EXPECT_EQ(second[0].begin_seconds, 20);
  EXPECT_EQ(second[0].end_seconds, 23);
}

// The link is much slower than compute: waits must not count as compute in the trace, and copies
// and updates must be at their times.
TEST(Trainer, TracesTracksAndSplitsActionsAtWaits) {
  MeshCase c{
      .model = {.layers = 3, .width = 32, .heads = 4, .vocab = 48, .context = 16, .tie = false},
      .micro_batch = 8,
      .tiers = {Tier::kHost, Tier::kHost, Tier::kHost},
      .window = 1};
  const Sequential model = mesh_model(c);
  const StepPlan plan = mesh_plan(c, model);
  TrainerOptions options = mesh_options(c);
  constexpr double kLatency = 0.02;
  options.link = {.latency_seconds = kLatency};
  run_thread_ranks({}, [&](Group& group, MemoryAccount&) {
    Trainer trainer(model, plan, group, options);
    trainer.initialise();
    trainer.step(mesh_batch(c, 0), 1e-2);
    trainer.trace().clear();
    trainer.take_tracks();
    trainer.step(mesh_batch(c, 1), 1e-2);
    trainer.step(mesh_batch(c, 2), 1e-2);
    double wait = 0, last = 0;
    int forwards = 0, forward = -1;
    for (const TraceEvent& event : trainer.trace().events()) {
      EXPECT_GE(event.begin_seconds, last);  // none overlaps another
      last = event.end_seconds;
      // One or two events per layer: it may wait in between.
      if (event.op == Op::kForward &&
          std::exchange(forward, event.first_layer) != event.first_layer)
        ++forwards;
      if (event.op == Op::kPrefetchWeights) wait += event.end_seconds - event.begin_seconds;
    }
    int tracks[kNumTrackKinds] = {};
    double link = 0;
    for (const TrackEvent& event : trainer.take_tracks()) {
      ++tracks[static_cast<int>(event.track)];
      EXPECT_GE(event.layer, 0);
      EXPECT_LT(event.layer, model.num_layers());
      if (event.track == TrackKind::kToDevice) link += event.end_seconds - event.begin_seconds;
    }
    const int layers = model.num_layers();
    EXPECT_EQ(forwards, 2 * layers);
    // A window of one fetches all layers twice except the one between forward and backward.
    EXPECT_EQ(tracks[static_cast<int>(TrackKind::kToDevice)], 2 * (2 * layers - 1));
    EXPECT_EQ(tracks[static_cast<int>(TrackKind::kToHost)], 2 * layers);
    // Sums of squares of both steps, updates of the first; the last updates may still run.
    EXPECT_GE(tracks[static_cast<int>(TrackKind::kUpdate)], 2 * layers + layers);
    EXPECT_GE(wait, link / 2);
  });
}

}  // namespace
}  // namespace strata
