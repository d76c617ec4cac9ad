#include "strata/plan/ledger/ledger.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "strata/plan/example_models_test.h"
#include "strata/schedule/builders.h"
#include "strata/schedule/passes.h"

namespace strata {
namespace {

using enum ScheduleKind;

// A model on ranks, with one second per forward and two per backward, ready for a ledger.
struct Model {
  Dataflow dataflow;
  CostTable costs;
  Partition partition;
  PipelineShape shape;
  LayerSet recompute = {};
  bool update = true;

  Model(int num_layers, PipelineShape of, const LayerCost& layer, const ValueCost& value)
      : dataflow(chain(num_layers)),
        costs(equal_costs(dataflow, layer, value)),
        partition(equal_stages(num_layers, of.ranks * of.virtual_stages)),
        shape(of) {
    for (LayerCost& cost : costs.layers) {
      cost.forward_seconds = 1;
      cost.backward_seconds = 2;
    }
  }
  Schedule lowered(ScheduleKind kind) const {
    return lower(build_schedule(kind, shape), dataflow, partition,
                 {.recompute = recompute, .update = update});
  }
  Ledger ledger(ScheduleKind kind) const {
    const Schedule schedule = lowered(kind);
    return make_ledger(schedule, dataflow, partition, costs,
                       simulate(schedule, dataflow, partition, costs));
  }
};

const LayerCost kLayer{.weight_bytes = 1000,
                       .gradient_bytes = 2000,
                       .state_bytes = 3000,
                       .saved_bytes = 100,
                       .forward_transient_bytes = 5,
                       .backward_transient_bytes = 7};

TEST(Ledger, OneMicroBatchOnOneRankMatchesHandCount) {
  Model model(3, {.ranks = 1}, kLayer, {.bytes = 10});
  model.costs.batch_bytes = 64;
  const RankLedger rank = model.ledger(k1f1b)[0];
  // Before: 3 x 6000 + 64. The peak is in layer 2's backward: saved bytes of three layers, x0 and
  // x1, the gradient of x1, the transient. (Layer 1's backward: saved bytes of two layers, x0, x1,
  // the gradients of both.)
  EXPECT_EQ(rank.timeline.front().bytes, 18064);
  EXPECT_EQ(rank.at_peak[ByteKind::kWeights], 3000);
  EXPECT_EQ(rank.at_peak[ByteKind::kGradients], 6000);
  EXPECT_EQ(rank.at_peak[ByteKind::kStates], 9000);
  EXPECT_EQ(rank.at_peak[ByteKind::kBatch], 64);
  EXPECT_EQ(rank.at_peak[ByteKind::kSaved], 300);
  EXPECT_EQ(rank.at_peak[ByteKind::kValues], 30);
  EXPECT_EQ(rank.at_peak[ByteKind::kTransients], 7);
  EXPECT_EQ(rank.peak_bytes, 18064 + 337);
  EXPECT_EQ(rank.peak_bytes, rank.at_peak.total());
  EXPECT_EQ(rank.peak_position, 1);  // F, then B
}

TEST(Ledger, StepEndsWithoutMicroBatchBytes) {
  for (const ScheduleKind kind : {kGpipe, k1f1b, kInterleaved}) {
    Model model(8, {.ranks = 2, .micro_batches = 5, .virtual_stages = kind == k1f1b ? 1 : 2},
                kLayer, {.bytes = 10, .transfer_seconds = 0.25});
    model.dataflow.values.push_back({.name = "skip", .producer = 0, .consumers = {3, 6, 7}});
    model.costs.values.push_back({.bytes = 4});
    for (const bool recompute : {false, true}) {
      model.recompute = recompute ? LayerSet::all(8) : LayerSet{};
      for (const RankLedger& rank : model.ledger(kind)) {
        EXPECT_EQ(rank.timeline.front().bytes, rank.timeline.back().bytes) << name_of(kind);
        EXPECT_GT(rank.peak_bytes, rank.timeline.front().bytes);
      }
    }
  }
}

TEST(Ledger, TimelineAscendsAndReachesPeakExactly) {
  for (const double transfer : {0.0, 0.25, 4.0}) {
    Model model(4, {.ranks = 4, .micro_batches = 6}, kLayer,
                {.bytes = 10, .transfer_seconds = transfer});
    for (const RankLedger& rank : model.ledger(k1f1b)) {
      std::int64_t most = 0;
      double last = 0;
      for (const MemoryPoint& point : rank.timeline) {
        EXPECT_GE(point.seconds, last);
        last = point.seconds;
        most = std::max(most, point.bytes);
      }
      EXPECT_EQ(most, rank.peak_bytes);
    }
  }
}

TEST(Ledger, GpipeHoldsAllMicroBatchesAnd1F1BOnlyItsWarmUp) {
  const LayerCost saves{.saved_bytes = 100};
  const Model model(4, {.ranks = 4, .micro_batches = 9}, saves, {});
  const Ledger gpipe = model.ledger(kGpipe);
  const Ledger one_f_one_b = model.ledger(k1f1b);
  for (int r = 0; r < 4; ++r) {
    EXPECT_EQ(gpipe[r].peak_bytes, 900);
    EXPECT_EQ(one_f_one_b[r].peak_bytes, 100 * (4 - r));
  }
}

TEST(Ledger, RecomputedLayerHoldsActivationsFromRecomputeToBackward) {
  Model model(2, {.ranks = 1, .micro_batches = 4},
              {.saved_bytes = 100, .forward_transient_bytes = 5}, {.bytes = 10});
  model.recompute = {0, 1};
  const RankLedger rank = model.ledger(kGpipe)[0];
  // x0 of three micro-batches and the gradient of the first micro-batch's, whose layer 0 is
  // recomputed: its saved bytes, its output again, its transient.
  EXPECT_EQ(rank.at_peak[ByteKind::kSaved], 100);
  EXPECT_EQ(rank.at_peak[ByteKind::kValues], 40);
  EXPECT_EQ(rank.at_peak[ByteKind::kTransients], 15);
  EXPECT_EQ(to_string(model.lowered(kGpipe).programs[0][rank.peak_position]), "R s0 m0 [0,1)");
}

TEST(Ledger, ShorterMicroBatchKeepsFixedBytes) {
  Model model(1, {.ranks = 1, .micro_batches = 1},
              {.forward_transient_bytes = 100,
               .backward_transient_bytes = 200,
               .forward_fixed_bytes = 0,
               .backward_fixed_bytes = 80},
              {});
  model.costs.micro_batch_scale = {0.25};
  EXPECT_EQ(model.ledger(kGpipe)[0].peak_bytes, 80 + 30);
  for (LayerCost& cost : model.costs.layers) cost.forward_fixed_bytes = 100;
  model.costs.layers[0].forward_transient_bytes = 140;
  EXPECT_EQ(model.ledger(kGpipe)[0].peak_bytes, 110);
  model.costs.layers[0].forward_fixed_bytes = 140;
  EXPECT_EQ(model.ledger(kGpipe)[0].peak_bytes, 140);
}

TEST(Ledger, SenderIsChargedUntilReceiverTakesValue) {
  // Rank 0 has computed all four values before the first one arrives.
  const PipelineShape shape{.ranks = 2, .micro_batches = 4};
  const Model slow(2, shape, {}, {.bytes = 10, .transfer_seconds = 50});
  EXPECT_EQ(slow.ledger(kGpipe)[0].at_peak[ByteKind::kValues], 40);
  // Here each value is received while the next one is computed.
  Model fast(2, shape, {}, {.bytes = 10, .transfer_seconds = 0.5});
  fast.update = false;  // otherwise the sender would not know
  EXPECT_EQ(fast.ledger(kGpipe)[0].at_peak[ByteKind::kValues], 20);
}

// The charge holds for any delay of the other rank: the sender knows that a value was received when
// its gradient arrives.
TEST(Ledger, WholeStepChargesSenderUntilItKnowsOfReceipt) {
  const PipelineShape shape{.ranks = 2, .micro_batches = 6};
  for (const double transfer : {0.0, 0.5, 50.0}) {
    Model model(2, shape, {}, {.bytes = 10, .transfer_seconds = transfer});
    model.update = true;
    // GPipe: all six values, and the gradient that layer 0 has received. 1F1B: two values are in
    // transit.
    const Ledger gpipe = model.ledger(kGpipe), one_f_one_b = model.ledger(k1f1b);
    EXPECT_EQ(gpipe[0].at_peak[ByteKind::kValues], 60) << transfer;
    EXPECT_LE(one_f_one_b[0].at_peak[ByteKind::kValues], 30) << transfer;
    EXPECT_GE(one_f_one_b[0].at_peak[ByteKind::kValues], 20) << transfer;
    for (const Ledger& ledger : {gpipe, one_f_one_b})
      for (const RankLedger& rank : ledger) EXPECT_EQ(rank.timeline.back().bytes, 0) << transfer;
  }
}

// The gradient of the first micro-batch was sent before the second value was received, so it proves
// nothing about the second.
TEST(Ledger, OnlyLaterMessageProvesReceipt) {
  for (const double transfer : {0.0, 50.0}) {
    Model model(2, {.ranks = 2, .micro_batches = 2}, {.backward_transient_bytes = 100},
                {.bytes = 10, .transfer_seconds = transfer});
    EXPECT_EQ(model.ledger(k1f1b)[0].peak_bytes, 100 + 10 + 10) << transfer;
  }
}

TEST(Ledger, ValueStaysUntilLastLocalReaderRanBackward) {
  // Layers 1 and 2 read x0, all on one rank; layer 1's own output costs nothing.
  Model model(3, {.ranks = 1}, {}, {});
  model.dataflow.values[0].consumers = {1, 2};
  model.costs.values[0].bytes = 10;
  const RankLedger rank = model.ledger(k1f1b)[0];
  // In layer 1's backward: x0 itself and the gradients of both readers.
  EXPECT_EQ(rank.peak_bytes, 30);
  EXPECT_EQ(rank.timeline.back().bytes, 0);
}

TEST(Ledger, InputWithoutGradientHasNoGradientBytes) {
  Model model(2, {.ranks = 1}, {}, {.bytes = 10});
  model.dataflow.values[0].differentiable = false;
  EXPECT_EQ(model.ledger(k1f1b)[0].peak_bytes, 10);
}

TEST(Ledger, ForwardOnlyFreesValueAfterLastReader) {
  Model model(5, {.ranks = 1, .micro_batches = 3}, {.saved_bytes = 1000}, {.bytes = 10});
  model.update = false;
  const RankLedger rank = model.ledger(kForward)[0];
  EXPECT_EQ(rank.peak_bytes, 20);  // a layer's input and output; nothing is saved
  EXPECT_EQ(rank.timeline.back().bytes, 0);
}

// Without a graph, tensors that would be saved are transient.
TEST(Ledger, ForwardWithoutGraphUsesItsOwnTransients) {
  Model model(2, {.ranks = 1, .micro_batches = 2},
              {.saved_bytes = 100,
               .forward_transient_bytes = 5,
               .no_grad_transient_bytes = 700,
               .no_grad_fixed_bytes = 300},
              {.bytes = 10});
  model.costs.micro_batch_scale = {1, 0.5};
  model.recompute = {0, 1};
  EXPECT_EQ(model.ledger(kGpipe)[0].at_peak[ByteKind::kTransients], 700);
  model.costs.micro_batch_scale = {0.5, 0.5};
  EXPECT_EQ(model.ledger(kGpipe)[0].at_peak[ByteKind::kTransients], 300 + 200);
  model.recompute = {};
  model.update = false;
  EXPECT_EQ(model.ledger(kForward)[0].at_peak[ByteKind::kTransients], 500);
}

TEST(Ledger, CountsCopiesOfTiedWeightsOwnedByOtherRanks) {
  for (const int ranks : {1, 2}) {
    Model model(4, {.ranks = ranks}, {}, {});
    model.dataflow.ties.push_back({.name = "table", .owner = 0, .users = {3}});
    model.costs.layers[3].replica_bytes = 77;
    const Ledger ledger = model.ledger(k1f1b);
    EXPECT_EQ(ledger.back().at_peak[ByteKind::kReplicas], ranks == 1 ? 0 : 77);
  }
}

// The owner sends the weight after the update, so it starts the next step with its copy. The
// gradient is sent before the norm, and is fp32 even if the weight is not.
TEST(Ledger, TiedWeightsAndGradientsAreSentAsCopies) {
  constexpr std::int64_t kWeight = 77, kGradient = 154;
  Model model(4, {.ranks = 2}, {}, {});
  model.dataflow.ties.push_back({.name = "table", .owner = 0, .users = {3}});
  model.costs.layers[3].replica_bytes = kWeight;
  model.costs.layers[3].gradient_bytes = kGradient;
  const Ledger ledger = model.ledger(k1f1b);
  const RankLedger &owner = ledger[0], &user = ledger[1];
  EXPECT_EQ(owner.timeline.front().bytes, kWeight);
  EXPECT_EQ(owner.peak_bytes, kGradient);  // received, held until it is added
  EXPECT_EQ(owner.timeline.back().bytes, 0);
  EXPECT_EQ(user.timeline.front().bytes, kWeight + kGradient);
  EXPECT_EQ(user.peak_bytes, kWeight + 2 * kGradient);  // sent, held until the norm
  EXPECT_EQ(user.timeline.back().bytes, kWeight + kGradient);
}

TEST(Ledger, GradientsOfTiedWeightsStayUntilAllAreAdded) {
  constexpr std::int64_t kGradient = 154;
  Model model(6, {.ranks = 3}, {}, {});
  model.dataflow.ties.push_back({.name = "table", .owner = 0, .users = {3, 5}});
  for (const int user : {3, 5}) {
    model.costs.layers[user].replica_bytes = 1;
    model.costs.layers[user].gradient_bytes = kGradient;
  }
  EXPECT_EQ(model.ledger(k1f1b)[0].peak_bytes, 2 * kGradient);
}

// Until a gradient proves that the user has received the weight, which is after all forwards of
// GPipe.
TEST(Ledger, SentTiedWeightStaysUntilOwnerKnowsOfReceipt) {
  Model model(2, {.ranks = 2, .micro_batches = 3}, {}, {.bytes = 10});
  model.dataflow.ties.push_back({.name = "table", .owner = 0, .users = {1}});
  model.costs.layers[1].replica_bytes = 77;
  EXPECT_EQ(model.ledger(kGpipe)[0].peak_bytes, 77 + 3 * 10);
}

TEST(Ledger, ShortMicroBatchScalesToWholeBytes) {
  Model model(1, {.ranks = 1, .micro_batches = 2}, {.saved_bytes = 101}, {});
  model.costs.micro_batch_scale = {1, 0.5};
  EXPECT_EQ(model.ledger(kGpipe)[0].peak_bytes, 101 + 51);
}

TEST(Ledger, NamesEveryKind) {
  EXPECT_STREQ(name_of(ByteKind::kWeights), "weights");
  EXPECT_STREQ(name_of(ByteKind::kSaved), "saved");
  EXPECT_STREQ(name_of(ByteKind::kTransients), "transients");
  EXPECT_STREQ(name_of(ByteKind::kBatch), "batch");
}

}  // namespace
}  // namespace strata
