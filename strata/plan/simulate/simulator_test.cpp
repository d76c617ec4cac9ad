#include "strata/plan/simulate/simulator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>

#include "strata/base/errors.h"
#include "strata/plan/example_models_test.h"
#include "strata/schedule/builders.h"
#include "strata/schedule/passes.h"
#include "strata/schedule/validator.h"

namespace strata {
namespace {

using enum ScheduleKind;

// A row of the paper's tables 5 and 9; times in milliseconds.
struct Published {
  int ranks, micro_batches;
  double forward, input_gradient, weight_gradient, transfer;
  double rate_1f1b;
  // layers of the model (and of its ends) / ranks: the largest possible number
  int virtual_stages;
  double rate_interleaved;
  double rate_zb_h1, rate_zb_h2;
};

// Source: Zero Bubble Pipeline Parallelism, arXiv 2401.10241. The virtual stages are not stated
// with the rates; one layer a virtual stage, (layers + 2) / ranks of them, comes closest in every
// row.
constexpr Published kPublished[] = {
    {8, 24, 18.522, 18.086, 9.337, .601, .2431, 3, .1055, .1585, .1083},
    {8, 64, 18.546, 18.097, 9.321, .762, .1240, 3, .0443, .0674, .0444},
    {8, 24, 29.718, 29.444, 19.927, .527, .2347, 4, .0808, .1323, .0698},
    {16, 48, 11.347, 11.248, 8.132, .377, .2552, 3, .1104, .1397, .0672},
    {32, 96, 10.419, 10.207, 7.715, .408, .2646, 2, .1493, .1421, .0641},
    {32, 256, 10.402, 10.248, 7.698, .460, .1352, 2, .0624, .0594, .0257},
};

// The longest time from the first to the last work of a rank.
double longest_span(const Simulation& simulation) {
  double longest = 0;
  for (const RankTimeline& rank : simulation.ranks) {
    double first = simulation.step_seconds;
    double last = 0;
    for (const TraceEvent& event : rank.events) {
      if (!is_compute(event.op)) continue;
      first = std::min(first, event.begin_seconds);
      last = std::max(last, event.end_seconds);
    }
    longest = std::max(longest, last - first);
  }
  return longest;
}

double bubble_rate(const Published& row, ScheduleKind kind, int virtual_stages) {
  const PipelineShape shape{row.ranks, row.micro_batches, virtual_stages};
  const int stages = row.ranks * virtual_stages;
  const Dataflow dataflow = chain(stages);
  const double backward = row.input_gradient + row.weight_gradient;
  const CostTable costs = equal_costs(dataflow,
                                      {.forward_seconds = row.forward / virtual_stages,
                                       .backward_seconds = backward / virtual_stages,
                                       .weight_seconds = row.weight_gradient / virtual_stages},
                                      {.transfer_seconds = row.transfer});
  const Partition partition = equal_stages(stages, stages);
  const Schedule lowered =
      lower(build_schedule(kind, shape), dataflow, partition, {.update = false});
  const Simulation simulation = simulate(lowered, dataflow, partition, costs);
  const double cost = longest_span(simulation);
  return (cost - row.micro_batches * (row.forward + backward)) / cost;
}

TEST(Simulation, ReproducesPublished1F1BBubbleRatesToFourDecimals) {
  for (const Published& row : kPublished) {
    EXPECT_NEAR(bubble_rate(row, k1f1b, 1), row.rate_1f1b, 0.00005)
        << row.ranks << " ranks, " << row.micro_batches << " micro-batches";
  }
}

TEST(Simulation, ReproducesPublishedZeroBubbleRatesToFourDecimals) {
  for (const Published& row : kPublished) {
    EXPECT_NEAR(bubble_rate(row, kZbH1, 1), row.rate_zb_h1, 0.00005)
        << row.ranks << " ranks, " << row.micro_batches << " micro-batches";
    EXPECT_NEAR(bubble_rate(row, kZbH2, 1), row.rate_zb_h2, 0.00005)
        << row.ranks << " ranks, " << row.micro_batches << " micro-batches";
  }
}

// GPipe's throughput with 32 micro-batches on K accelerators, divided by that of K = 2 with one
// micro-batch (Huang et al. 2019, Table 2, Transformer-48) or with 32 (Table 3, Transformer-24 on
// GPUs without fast links). The layers of a Transformer take equal time, so stages do. GPipe
// computes a whole stage twice, while it waits for the gradient: a stage is one layer here.
double gpipe_seconds(int ranks, int micro_batches) {
  const Dataflow dataflow = chain(ranks);
  const Partition partition = equal_stages(ranks, ranks);
  const double share = 1.0 / (ranks * micro_batches);
  const CostTable costs =
      equal_costs(dataflow, {.forward_seconds = share, .backward_seconds = 2 * share}, {});
  const Schedule order = gpipe({.ranks = ranks, .micro_batches = micro_batches});
  const LowerOptions options{.recompute = LayerSet::all(ranks), .update = false};
  return simulate(lower(order, dataflow, partition, options), dataflow, partition, costs)
      .step_seconds;
}

TEST(Simulation, ReproducesSpeedUpsOfGPipeWithinSevenPercent) {
  constexpr double kClose = 0.07;
  for (const auto& [ranks, published] : {std::pair(2, 1.8), {4, 3.4}, {8, 6.3}})
    EXPECT_NEAR(gpipe_seconds(2, 1) / gpipe_seconds(ranks, 32), published, kClose * published);
  for (const auto& [ranks, published] : {std::pair(4, 1.8), {8, 3.3}})
    EXPECT_NEAR(gpipe_seconds(2, 32) / gpipe_seconds(ranks, 32), published, kClose * published);
}

// Stages placed in a V, with equal times for forwards and both halves. `waits`: the units of time
// that a rank may wait in a step, of 6 (p - 1) with 1F1B: V-Half half, V-Min two thirds. `held`:
// the stage activations that a rank may hold, of 2 p with 1F1B: V-Half half, V-Min a third, and
// what a start and an end add.
struct VShaped {
  ScheduleKind kind;
  int ranks;
  double waits;
  int held;
};

TEST(Simulation, StagesInAVWaitAndHoldAsPublished) {
  for (const VShaped& v :
       {VShaped{kZbv, 2, 0, 4}, VShaped{kZbv, 4, 0, 8}, VShaped{kZbv, 8, 0, 16},
        VShaped{kVHalf, 4, 9, 5}, VShaped{kVHalf, 8, 21, 9}, VShaped{kVMin, 4, 12, 4},
        VShaped{kVMin, 8, 28, 7}, VShaped{kDualPipeV, 4, 3, 9}, VShaped{kDualPipeV, 8, 7, 17}}) {
    SCOPED_TRACE(name_of(v.kind) + (" p" + std::to_string(v.ranks)));
    const PipelineShape shape{.ranks = v.ranks, .micro_batches = 4 * v.ranks, .virtual_stages = 2};
    const Dataflow dataflow = chain(2 * v.ranks);
    const Partition partition = equal_stages(2 * v.ranks, 2 * v.ranks);
    const CostTable costs = equal_costs(
        dataflow, {.forward_seconds = 1, .backward_seconds = 2, .weight_seconds = 1}, {});
    const Schedule order = build_schedule(v.kind, shape);
    const Simulation simulation =
        simulate(lower(order, dataflow, partition, {.update = false}), dataflow, partition, costs);
    const double work = 6.0 * shape.micro_batches;
    EXPECT_LE(longest_span(simulation) - work, v.waits);
    for (int rank = 0; rank < v.ranks; ++rank)
      EXPECT_LE(in_flight_bound(v.kind, shape, rank), v.held) << "rank " << rank;
  }
}

TEST(Simulation, ReproducesPublishedInterleavedBubbleRatesWithinFourThousandths) {
  for (const Published& row : kPublished) {
    EXPECT_NEAR(bubble_rate(row, kInterleaved, row.virtual_stages), row.rate_interleaved, 0.004)
        << row.ranks << " ranks, " << row.micro_batches << " micro-batches";
  }
}

// Two layers on two ranks; forward 1 s, backward 2 s, transfer 0.5 s.
struct TwoRanks {
  Dataflow dataflow = chain(2);
  CostTable costs =
      equal_costs(dataflow, {.forward_seconds = 1, .backward_seconds = 2, .update_seconds = 0.25},
                  {.bytes = 8, .transfer_seconds = 0.5});
  Partition partition = equal_stages(2, 2);

  Schedule lowered(ScheduleKind kind, int micro_batches, const LowerOptions& options) const {
    return lower(build_schedule(kind, {.ranks = 2, .micro_batches = micro_batches}), dataflow,
                 partition, options);
  }
  Simulation run(ScheduleKind kind, int micro_batches, const LowerOptions& options = {}) const {
    return simulate(lowered(kind, micro_batches, options), dataflow, partition, costs);
  }
};

const TraceEvent& event(const Simulation& simulation, int rank, Op op, int n = 0) {
  for (const TraceEvent& event : simulation.ranks[rank].events) {
    if (event.op == op && n-- == 0) return event;
  }
  ADD_FAILURE() << "rank " << rank << " has no event " << kind_of(op);
  return simulation.ranks[rank].events.front();
}

// Devices whose hosts enqueue their work; a launch takes almost no time.
CostTable on_devices(CostTable costs, const SharedDevices& devices) {
  costs.launch = {.kernel = 1e-9, .segment = 1e-9};
  costs.devices = devices;
  for (LayerCost& layer : costs.layers)
    layer.forward_launches = layer.backward_launches = layer.update_launches = 1;
  return costs;
}

std::vector<TrackEvent> work_of(const Simulation& simulation, const std::vector<int>& ranks) {
  std::vector<TrackEvent> work;
  for (const int rank : ranks)
    std::ranges::copy_if(
        simulation.ranks[rank].tracks, std::back_inserter(work),
        [](const TrackEvent& event) { return event.track == TrackKind::kCompute; });
  std::ranges::sort(work, {}, &TrackEvent::begin_seconds);
  return work;
}

// A pipeline on one GPU is no faster than the GPU.
TEST(Simulation, SerializesWorkOfRanksOnOneDevice) {
  TwoRanks two;
  for (const int micro_batches : {1, 2, 8}) {
    two.costs = on_devices(two.costs, {});
    const Simulation apart = two.run(k1f1b, micro_batches);
    two.costs = on_devices(two.costs, {.of_rank = {0, 0}, .times_as_long = {1, 1}});
    const Simulation shared = two.run(k1f1b, micro_batches);
    const double work = 2 * (3.0 * micro_batches + 0.25);
    EXPECT_NEAR(shared.step_seconds, work, 1e-6) << micro_batches;
    if (micro_batches > 1) EXPECT_LT(apart.step_seconds, work - 1) << micro_batches;
    const std::vector<TrackEvent> all = work_of(shared, {0, 1});
    for (std::size_t i = 1; i < all.size(); ++i)
      EXPECT_GE(all[i].begin_seconds, all[i - 1].end_seconds);
    for (const RankTimeline& rank : shared.ranks) {
      EXPECT_NEAR(rank.busy_seconds, work / 2, 1e-6);
      EXPECT_NEAR(rank.launch_wait_seconds, 0, 1e-6);
      for (const TraceEvent& event : row_of(rank)) {
        // the other rank's work is not a wait for weights
        EXPECT_NE(event.op, Op::kPrefetchWeights);
        EXPECT_NE(event.op, Op::kOffloadGradients);
      }
    }
  }
}

TEST(Simulation, DevicesOfRoundRobinPipelineAreBusyAtOnce) {
  const Dataflow dataflow = chain(4);
  CostTable costs =
      equal_costs(dataflow, {.forward_seconds = 1, .backward_seconds = 2, .update_seconds = 0.25},
                  {.bytes = 8});
  costs = on_devices(costs, {.of_rank = {0, 1, 0, 1}, .times_as_long = {1, 1, 1, 1}});
  const Partition partition = equal_stages(4, 4);
  const auto step = [&](int micro_batches) {
    const Schedule schedule =
        lower(build_schedule(k1f1b, {.ranks = 4, .micro_batches = micro_batches}), dataflow,
              partition, {});
    const Simulation simulation = simulate(schedule, dataflow, partition, costs);
    for (const std::vector<int>& device : {std::vector{0, 2}, std::vector{1, 3}}) {
      const std::vector<TrackEvent> work = work_of(simulation, device);
      EXPECT_EQ(work.size(), static_cast<std::size_t>(2 * (2 * micro_batches + 1)));
      for (std::size_t i = 1; i < work.size(); ++i)
        EXPECT_GE(work[i].begin_seconds, work[i - 1].end_seconds);
    }
    return simulation.step_seconds;
  };
  EXPECT_NEAR(step(1), 4 * 3 + 2 * 0.25, 1e-6);
  EXPECT_GE(step(8), 2 * (8 * 3 + 0.25));
  EXPECT_LT(step(8), 0.8 * 4 * 8 * 3);  // a stream that waits for a message does nothing else
}

// Each of two replicas waits for the other's kernels.
TEST(Simulation, TwoReplicasOnOneDeviceTakeTwiceAsLong) {
  TwoRanks two;
  two.costs = on_devices(two.costs, {.of_rank = {0, 1}, .times_as_long = {2, 2}});
  const Simulation shared = two.run(k1f1b, 1);
  two.costs = on_devices(two.costs, {});
  const Simulation apart = two.run(k1f1b, 1);
  EXPECT_NEAR(apart.step_seconds, 6.25 + 2 * 0.5, 1e-6);
  EXPECT_NEAR(shared.step_seconds, 2 * 6.25 + 2 * 0.5, 1e-6);
}

TEST(Simulation, OneMicroBatchThroughTwoRanksMatchesHandCount) {
  const Simulation simulation = TwoRanks().run(k1f1b, 1);
  // Rank 0: F [0,1]; its value arrives at 1.5. Rank 1: F [1.5,2.5], B [2.5,4.5]; the gradient
  // arrives at 5. Rank 0: B [5,7]. Both leave the norm at 7 and update until 7.25.
  EXPECT_DOUBLE_EQ(event(simulation, 1, Op::kReceiveActivation).begin_seconds, 0);
  EXPECT_DOUBLE_EQ(event(simulation, 1, Op::kReceiveActivation).end_seconds, 1.5);
  EXPECT_DOUBLE_EQ(event(simulation, 1, Op::kBackward).end_seconds, 4.5);
  EXPECT_DOUBLE_EQ(event(simulation, 0, Op::kBackward).begin_seconds, 5);
  EXPECT_DOUBLE_EQ(event(simulation, 1, Op::kReduceNormAndLoss).begin_seconds, 4.5);
  EXPECT_DOUBLE_EQ(event(simulation, 1, Op::kReduceNormAndLoss).end_seconds, 7);
  EXPECT_DOUBLE_EQ(simulation.step_seconds, 7.25);
  EXPECT_DOUBLE_EQ(simulation.ranks[0].busy_seconds, 3.25);
  EXPECT_DOUBLE_EQ(simulation.ranks[1].idle_seconds, 4);
  EXPECT_DOUBLE_EQ(simulation.bubble, 1 - 6.5 / 14.5);
}

// One layer: 1 s forward, 2 s backward, 0.5 s update. From the backward on, the update of
// embeddings and the next read take 10 s.
TEST(Simulation, WaitsForEmbeddingsThatStepsDoNotHide) {
  Dataflow dataflow = chain(1);
  dataflow.rows_layer = 0;
  const Schedule schedule = lower(build_schedule(kGpipe, {1, 1}), dataflow, {{0, 1}}, {});
  for (const auto& [staleness, step] :
       {std::pair(0, 13.0), std::pair(1, (10 + 3.0) / 2), std::pair(2, (10 + 3.0) / 3),
        std::pair(3, 3.5), std::pair(8, 3.5)}) {
    CostTable costs = equal_costs(
        dataflow, {.forward_seconds = 1, .backward_seconds = 2, .update_seconds = 0.5}, {});
    costs.rows = {.wait_seconds = 10, .staleness = staleness};
    // The read of step t starts after the update of t - 1 - staleness. So many steps take these 10
    // s plus one forward and backward, or their own work if that is longer.
    EXPECT_NEAR(simulate(schedule, dataflow, {{0, 1}}, costs).step_seconds, step, 1e-12)
        << staleness;
  }
}

// The same layer, 3.5 s of work, with embeddings whose wait is hidden.
TEST(Simulation, StepIsNoShorterThanEmbeddingWork) {
  Dataflow dataflow = chain(1);
  dataflow.rows_layer = 0;
  const Schedule schedule = lower(build_schedule(kGpipe, {1, 1}), dataflow, {{0, 1}}, {});
  CostTable costs = equal_costs(
      dataflow, {.forward_seconds = 1, .backward_seconds = 2, .update_seconds = 0.5}, {});
  const auto step = [&](const RowsCost& rows) {
    costs.rows = rows;
    return simulate(schedule, dataflow, {{0, 1}}, costs).step_seconds;
  };
  EXPECT_DOUBLE_EQ(step({.rank_seconds = 0.25, .staleness = 3}), 3.75);
  EXPECT_DOUBLE_EQ(step({.beside_seconds = 3, .staleness = 3}), 3.5);
  EXPECT_DOUBLE_EQ(step({.beside_seconds = 5, .staleness = 3}), 5);
  EXPECT_DOUBLE_EQ(step({.rank_seconds = 0.25, .beside_seconds = 5, .staleness = 3}), 5);
  // One processor for all threads: 3.5 + 0.5 + 2 s of work; two processors run them at once.
  const RowsCost rows{
      .rank_seconds = 0.5, .beside_seconds = 1, .work_seconds = 2, .processors = 1, .staleness = 3};
  EXPECT_DOUBLE_EQ(step(rows), 6);
  RowsCost more = rows;
  more.processors = 2;
  EXPECT_DOUBLE_EQ(step(more), 4);
  more.rank_threads = 2;  // compute threads
  EXPECT_DOUBLE_EQ(step(more), (2 * 3.5 + 0.5 + 2) / 2);
}

TEST(Simulation, SendsWithoutWaiting) {
  // Rank 0 forwards both micro-batches without a gap although transfers take longer than a forward.
  // The second transfer begins when the first has ended.
  TwoRanks model;
  model.costs.values[0].transfer_seconds = 5;
  const Simulation simulation = model.run(kGpipe, 2);
  EXPECT_DOUBLE_EQ(event(simulation, 0, Op::kForward, 1).begin_seconds, 1);
  EXPECT_DOUBLE_EQ(event(simulation, 1, Op::kForward, 0).begin_seconds, 6);
  EXPECT_DOUBLE_EQ(event(simulation, 1, Op::kForward, 1).begin_seconds, 11);
}

TEST(Simulation, LatenciesOfMessagesOverlap) {
  TwoRanks model;
  model.costs.latency_seconds = 10;
  const Simulation simulation = model.run(kGpipe, 2);
  EXPECT_DOUBLE_EQ(event(simulation, 1, Op::kForward, 0).begin_seconds, 1 + 0.5 + 10);
  EXPECT_DOUBLE_EQ(event(simulation, 1, Op::kForward, 1).begin_seconds, 2 + 0.5 + 10);
}

TEST(Simulation, RecomputeCostsForwardAndPrecedesGradient) {
  const Simulation simulation = TwoRanks().run(k1f1b, 1, {.recompute = {0}});
  EXPECT_DOUBLE_EQ(event(simulation, 0, Op::kRecompute).begin_seconds, 1);
  EXPECT_DOUBLE_EQ(event(simulation, 0, Op::kRecompute).end_seconds, 2);
  EXPECT_DOUBLE_EQ(simulation.step_seconds, 7.25);  // hidden in the wait
}

TEST(Simulation, GpipeIdleShareMatchesPublishedFormula) {
  for (const int ranks : {2, 4, 8}) {
    for (const int micro_batches : {1, 4, 32}) {
      const Dataflow dataflow = chain(ranks);
      const CostTable costs = equal_costs(dataflow, {.forward_seconds = 1, .backward_seconds = 2});
      const Partition partition = equal_stages(ranks, ranks);
      const Schedule lowered =
          lower(gpipe({.ranks = ranks, .micro_batches = micro_batches}), dataflow, partition, {});
      const double bubble = simulate(lowered, dataflow, partition, costs).bubble;
      EXPECT_NEAR(bubble, (ranks - 1.0) / (micro_batches + ranks - 1.0), 1e-12);
    }
  }
}

TEST(Simulation, ShortMicroBatchScalesTimeAndTransfer) {
  TwoRanks model;
  model.costs.micro_batch_scale = {1, 0.5};
  const Simulation simulation = model.run(kGpipe, 2);
  const TraceEvent& forward = event(simulation, 0, Op::kForward, 1);
  EXPECT_DOUBLE_EQ(forward.end_seconds - forward.begin_seconds, 0.5);
  // Its value is sent at 1.5 and takes 0.25: it arrives before rank 1 is free at 2.5.
  EXPECT_DOUBLE_EQ(event(simulation, 1, Op::kReceiveActivation, 1).end_seconds, 2.5);
}

TEST(Simulation, EveryActionAddsOverhead) {
  TwoRanks model;
  model.costs.overhead_seconds = 0.125;
  const Simulation simulation = model.run(k1f1b, 1);
  EXPECT_DOUBLE_EQ(event(simulation, 0, Op::kForward).end_seconds, 1.125);
  EXPECT_DOUBLE_EQ(event(simulation, 0, Op::kSendActivation).end_seconds, 1.25);
  EXPECT_DOUBLE_EQ(event(simulation, 1, Op::kReceiveActivation).end_seconds,
                   1.875);  // 1.25 + 0.5 + 0.125
}

TEST(Simulation, TiedGradientsTakeMeanRateOfValues) {
  TwoRanks model;
  model.dataflow.ties.push_back({.name = "table", .owner = 0, .users = {1}});
  model.costs.layers[1].replica_bytes = 16;  // twice the value: 1 s
  const Simulation simulation = model.run(k1f1b, 1);
  EXPECT_DOUBLE_EQ(event(simulation, 1, Op::kSendTiedGradient).begin_seconds, 4.5);
  EXPECT_DOUBLE_EQ(event(simulation, 0, Op::kReceiveTiedGradient).begin_seconds, 7);  // 5.5 is past
  EXPECT_DOUBLE_EQ(event(simulation, 1, Op::kReceiveTiedWeight).end_seconds, 7.25 + 1);
}

TEST(Simulation, OrdersSendsBeforeReceives) {
  for (const double transfer : {0.0, 0.5, 3.0}) {
    TwoRanks model;
    model.costs.values[0].transfer_seconds = transfer;
    const Schedule lowered = model.lowered(k1f1b, 5, {});
    const Simulation simulation = simulate(lowered, model.dataflow, model.partition, model.costs);
    std::vector<int> next(2);
    int in_flight = 0;
    for (const ActionRef& ref : simulation.order) {
      EXPECT_EQ(ref.position, next[ref.rank]++);
      const Op op = lowered.programs[ref.rank][ref.position].op;
      in_flight += is_send(op) - is_receive(op);
      EXPECT_GE(in_flight, 0);
    }
    EXPECT_EQ(next[0], static_cast<int>(lowered.programs[0].size()));
    EXPECT_EQ(next[1], static_cast<int>(lowered.programs[1].size()));
  }
}

TEST(Simulation, MessageWithoutSendIsInternalError) {
  const TwoRanks model;
  Schedule lowered = model.lowered(k1f1b, 1, {});
  std::erase_if(lowered.programs[0], [](const Action& a) { return a.op == Op::kSendActivation; });
  try {
    simulate(lowered, model.dataflow, model.partition, model.costs);
    FAIL();
  } catch (const InternalError& error) {
    EXPECT_EQ(error.text().operation, "plan.simulate");
    EXPECT_NE(error.text().got.find("from rank"), std::string::npos);
  }
}

constexpr LayerShards kGathered{.states = true, .reduced = true};
constexpr LayerShards kFetched{.states = true, .gradients = true, .weights = true, .reduced = true};

TEST(Simulator, FetchesAndReductionsOverlapWithCompute) {
  const Dataflow dataflow = chain(2);
  const CostTable costs = equal_costs(dataflow, {.forward_seconds = 1, .backward_seconds = 2});
  const Partition partition = equal_stages(2, 1);
  const Schedule schedule = lower(build_schedule(k1f1b, {1, 1}), dataflow, partition,
                                  {.shards = {.layers = {kFetched, kFetched}}});
  const auto step = [&](const CollectiveSeconds& seconds) {
    return simulate(schedule, dataflow, partition, costs, seconds).step_seconds;
  };
  EXPECT_DOUBLE_EQ(step({}), 6);
  EXPECT_DOUBLE_EQ(step({.fetch = {0.5, 0.5}}), 6.5);  // the first layer's fetch is exposed
  EXPECT_DOUBLE_EQ(step({.fetch = {3, 0}}), 6 + 3);    // and it stays until its backward
  // layer 1's overlaps with layer 0's backward
  EXPECT_DOUBLE_EQ(step({.reduce = {0.5, 2}}), 6.5);
  EXPECT_DOUBLE_EQ(step({.reduce = {0.5, 5}}), 9.5);   // one after another
  EXPECT_DOUBLE_EQ(step({.gather = {0.25, 0.5}}), 6);  // fetched weights are not gathered
  // Both reductions are complete at 8, one latency after the channel was free.
  EXPECT_DOUBLE_EQ(step({.reduce = {1, 1}, .reduce_latency = 1}), 8);
  EXPECT_DOUBLE_EQ(step({.fetch = {0.5, 0.5}, .gather_latency = 2}), 6.5 + 2);
  EXPECT_DOUBLE_EQ(step({.norm_latency = 0.25}), 6.25);
}

TEST(Simulator, GathersWeightsUpdatedInShards) {
  const Dataflow dataflow = chain(2);
  const CostTable costs =
      equal_costs(dataflow, {.forward_seconds = 1, .backward_seconds = 2, .update_seconds = 0.125});
  const Partition partition = equal_stages(2, 1);
  const Schedule schedule = lower(build_schedule(k1f1b, {1, 1}), dataflow, partition,
                                  {.shards = {.layers = {kGathered, kGathered}}});
  const CollectiveSeconds seconds{.gather = {0.25, 0.5}};
  EXPECT_DOUBLE_EQ(simulate(schedule, dataflow, partition, costs, seconds).step_seconds, 7);
  EXPECT_DOUBLE_EQ(
      simulate(schedule, dataflow, partition, costs, {.gather = {0.25, 0.5}, .gather_latency = 3})
          .step_seconds,
      10);
}

// Rank 0, which waits for no other rank, reaches the norm last although it is simulated first.
TEST(Simulation, NoRankLeavesNormBeforeLastArrives) {
  Dataflow dataflow = chain(2);
  dataflow.values[0].differentiable = false;
  CostTable costs = equal_costs(dataflow, {.forward_seconds = 1, .backward_seconds = 1});
  costs.layers[0].backward_seconds = 90;
  const Partition partition = equal_stages(2, 2);
  const Schedule lowered = lower(one_f_one_b({.ranks = 2}), dataflow, partition, {});
  for (const RankTimeline& rank : simulate(lowered, dataflow, partition, costs).ranks) {
    EXPECT_EQ(rank.events.back().end_seconds, 91);
  }
}

}  // namespace
}  // namespace strata
