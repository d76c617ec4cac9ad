#include "strata/plan/simulate/communication.h"

#include <gtest/gtest.h>

#include "strata/plan/example_models_test.h"
#include "strata/plan/ledger/zero_bytes.h"
#include "strata/schedule/builders.h"
#include "strata/schedule/passes.h"

namespace strata {
namespace {

constexpr std::int64_t kWeights = 4 * 64 * 1024;
const LayerCost kLayer{.forward_seconds = 1,
                       .backward_seconds = 2,
                       .update_seconds = 0.5,
                       .weight_bytes = kWeights,
                       .gradient_bytes = kWeights,
                       .state_bytes = 2 * kWeights};

// A model of four layers and its costs.
struct Model {
  Dataflow dataflow = chain(4);
  CostTable costs = equal_costs(dataflow, kLayer, {.bytes = 1000});
  int micro_batches = 2;
  bool reduce_each = false;

  Communication communication(int pp, MeshRequest mesh) const {
    mesh.axes[Axis::kPipeline] = pp;
    mesh.zero.reduce = reduce_each ? ReduceMode::kEach : ReduceMode::kOnce;
    const StepPlan steps(dataflow, layers_with_weights(costs),
                         {.mesh = mesh.axes,
                          .partition = equal_stages(4, pp),
                          .zero = mesh.zero,
                          .replicas_apart = mesh.outer_every > 0});
    return communication_of(steps, micro_batches, costs, mesh);
  }
};

TEST(MeshRequest, HasAxesAndZeroPolicyOfOptions) {
  const MeshRequest request = mesh_request({.axes = {{Axis::kData, 4}, {Axis::kTensor, 2}},
                                            .zero = {.stage = 3, .reduce = ReduceMode::kEach}});
  EXPECT_EQ(request.axes[Axis::kData], 4);
  EXPECT_EQ(request.axes[Axis::kTensor], 2);
  EXPECT_EQ(request.zero, (ZeroPolicy{.stage = 3, .reduce = ReduceMode::kEach}));
}

TEST(Communication, ReplicasSendPublishedVolumes) {
  Model model;
  model.micro_batches = 1;
  for (int zero = 0; zero <= 3; ++zero) {
    const RankTraffic rank =
        model.communication(1, {.axes = {{Axis::kData, 4}}, .zero = {.stage = zero}}).ranks[0];
    double expected = zero_volume(zero, 4) * 4 * kWeights;
    // The window keeps two layers between forward and backward, so two of four are fetched twice.
    if (zero == 3) expected -= 2 * kWeights * 3 / 4.0;
    EXPECT_DOUBLE_EQ(rank[Axis::kData].bytes, expected) << zero;
    EXPECT_DOUBLE_EQ(rank[Axis::kData].seconds, expected / kThreadRates[Axis::kData]);
  }
}

TEST(Communication, ReducingEachMicroBatchMultipliesGradientsOnly) {
  Model model;
  model.micro_batches = 3;
  const double once = model.communication(1, {.axes = {{Axis::kData, 2}}, .zero = {.stage = 2}})
                          .ranks[0][Axis::kData]
                          .bytes;
  model.reduce_each = true;
  const double each = model.communication(1, {.axes = {{Axis::kData, 2}}, .zero = {.stage = 2}})
                          .ranks[0][Axis::kData]
                          .bytes;
  EXPECT_DOUBLE_EQ(once, 4 * kWeights);  // half of the gradients, half of the weights
  EXPECT_DOUBLE_EQ(each - once, 2 * 4 * kWeights / 2.0);
}

TEST(Communication, HybridShardsAreSummedOverGroups) {
  Model model;
  const double sent =
      model.communication(1, {.axes = {{Axis::kData, 4}}, .zero = {.stage = 1, .shard_ranks = 2}})
          .ranks[0][Axis::kData]
          .bytes;
  // Per layer: half of its gradient scattered, the other half summed over two groups, half of its
  // weights gathered.
  EXPECT_DOUBLE_EQ(sent, 4 * kWeights * (0.5 + 0.5 + 0.5));
}

// Half of a layer's weights are matrices.
TEST(Communication, MatricesGoAsIntegersAndTheRestInFull) {
  Model model;
  model.micro_batches = 1;
  for (LayerCost& layer : model.costs.layers) layer.matrix_bytes = kWeights / 2;
  const auto sent = [&](int zero, const Traffic& traffic) {
    return model
        .communication(1, {.axes = {{Axis::kData, 4}}, .zero = {.stage = zero, .traffic = traffic}})
        .ranks[0][Axis::kData]
        .bytes;
  };
  const double int8 = (1 + 4 / 128.0) / 4, int4 = (0.5 + 4 / 64.0) / 4;  // of fp32
  const double gradients = 4 * kWeights * 3 / 4.0;                       // of all layers, once
  EXPECT_DOUBLE_EQ(sent(0, {.gradients = TrafficFormat::kInt8}), 2 * gradients * (0.5 + int8 / 2));
  EXPECT_DOUBLE_EQ(sent(1, {.gradients = TrafficFormat::kInt4, .block = 64}),
                   gradients * (0.5 + int4 / 2) + gradients);
  // Four layers are fetched for forward and two again for backward.
  const Traffic both{.gradients = TrafficFormat::kInt4, .weights = TrafficFormat::kInt8};
  const double int4_of_128 = (0.5 + 4 / 128.0) / 4;
  EXPECT_DOUBLE_EQ(sent(3, both),
                   gradients * (0.5 + int4_of_128 / 2) + 1.5 * gradients * (0.5 + int8 / 2));
}

TEST(Communication, StagesSendEachValueAndGradientOncePerMicroBatch) {
  Model model;
  model.micro_batches = 3;
  model.costs.micro_batch_scale = {1, 1, 0.5};
  const Communication all = model.communication(4, {.rates = {{Axis::kPipeline, 1000}}});
  EXPECT_DOUBLE_EQ(all.ranks[0][Axis::kPipeline].bytes, 2500);
  EXPECT_DOUBLE_EQ(all.ranks[1][Axis::kPipeline].bytes, 5000);
  EXPECT_DOUBLE_EQ(all.ranks[3][Axis::kPipeline].bytes, 2500);
  EXPECT_DOUBLE_EQ(all.ranks[1][Axis::kPipeline].seconds, 5);
  EXPECT_GT(all.exposed_seconds[Axis::kPipeline], 0);
}

TEST(LinkRates, AreThoseOfLinkOnAxesThatLeaveProcess) {
  const LinkLimit link{.bytes_per_second = 8e6, .latency_seconds = 0.01};
  const Mesh mesh{{Axis::kPipeline, 2}, {Axis::kData, 2}, {Axis::kTensor, 2}};
  const AxisRates two = link_rates(link, mesh, 2);  // a stage a process
  EXPECT_EQ(two[Axis::kPipeline], 8e6 / 4);         // four ranks send over one link
  EXPECT_EQ(two[Axis::kData], kThreadRates[Axis::kData]);
  EXPECT_EQ(two[Axis::kTensor], kThreadRates[Axis::kTensor]);
  const AxisRates eight = link_rates(link, mesh, 8);
  for (const Axis axis : {Axis::kPipeline, Axis::kData, Axis::kTensor}) EXPECT_EQ(eight[axis], 8e6);
  const AxisRates unlimited = link_rates({.latency_seconds = 0.01}, mesh, 2);
  EXPECT_EQ(unlimited[Axis::kPipeline], kProcessRates[Axis::kPipeline]);
  EXPECT_EQ(link_latency(link, mesh, 2), (PerAxis<double>{{Axis::kPipeline, 0.01}}));
  // Of the ranks of a line, two are in each process.
  EXPECT_EQ(link_rates(link, {{Axis::kData, 4}}, 2)[Axis::kData], 8e6 / 2 * 3 / 2);
  EXPECT_EQ(link_rates(link, {{Axis::kPipeline, 4}}, 2)[Axis::kPipeline], 8e6);
  EXPECT_EQ(link_latency(link, {{Axis::kData, 2}}, 2), (PerAxis<double>{{Axis::kData, 0.01}}));
  // Ranks with parts of the sequence have the same weights: gradients cross their border, too.
  EXPECT_EQ(link_latency(link, {{Axis::kContext, 2}}, 2),
            (PerAxis<double>{{Axis::kData, 0.01}, {Axis::kContext, 0.01}}));
  const Mesh parts{{Axis::kData, 2}, {Axis::kContext, 2}};
  EXPECT_EQ(link_rates(link, parts, 2)[Axis::kContext], kThreadRates[Axis::kContext]);
  EXPECT_EQ(link_rates(link, parts, 2)[Axis::kData], 8e6 / 2 * 3 / 2);
}

// A step of one replica takes 4 x 1 s forward, 4 x 2 s backward and 4 x 0.5 s of updates.
TEST(Communication, LatencyIsExposedOncePerExchange) {
  Model model;
  model.micro_batches = 1;
  const MeshRequest replicas{
      .axes = {{Axis::kData, 2}}, .rates = {{Axis::kData, 1e15}}, .latency = {{Axis::kData, 0.25}}};
  // The last layer's sum is scattered and gathered; the norm goes to a rank and back, twice.
  EXPECT_NEAR(model.communication(1, replicas).exposed_seconds[Axis::kData], 2 * 0.25 + 4 * 0.25,
              1e-6);
  const MeshRequest stages{.rates = {{Axis::kPipeline, 1e15}},
                           .latency = {{Axis::kPipeline, 0.25}}};
  // One value forward, its gradient back; the norm of the mesh goes to a rank and back.
  EXPECT_NEAR(model.communication(2, stages).exposed_seconds[Axis::kPipeline], 2 * 0.25 + 2 * 0.25,
              1e-6);
}

// Attention sends in forward and backward, and exposes what it sends; ranks with parts of the
// sequence add their gradients like replicas.
TEST(Communication, AttentionOfPartsOfSamplesIsExposed) {
  Model model;
  model.micro_batches = 2;
  const MeshRequest replicas{.axes = {{Axis::kData, 2}}, .rates = {{Axis::kData, kWeights}}};
  const double gradients = model.communication(1, replicas).ranks[0][Axis::kData].bytes;
  for (LayerCost& layer : model.costs.layers) {
    layer.work.forward_context_bytes = 1000;
    layer.work.backward_context_bytes = 3000;
  }
  const MeshRequest parts{.axes = {{Axis::kContext, 2}},
                          .rates = {{Axis::kData, kWeights}, {Axis::kContext, 1e6}}};
  const Communication sent = model.communication(1, parts);
  const double layers = static_cast<double>(model.costs.layers.size());
  EXPECT_DOUBLE_EQ(sent.ranks[0][Axis::kContext].bytes, 2 * layers * 4000);
  EXPECT_NEAR(sent.exposed_seconds[Axis::kContext], 2 * layers * 0.004, 1e-6);
  EXPECT_DOUBLE_EQ(sent.ranks[0][Axis::kData].bytes, gradients);
  for (LayerCost& layer : model.costs.layers) {
    layer.work.forward_context_messages = 2;
    layer.work.backward_context_messages = 3;
  }
  MeshRequest far = parts;
  far.latency[Axis::kContext] = 0.5;
  EXPECT_NEAR(model.communication(1, far).exposed_seconds[Axis::kContext],
              2 * layers * (0.004 + 5 * 0.5), 1e-6);
}

// Ranks that keep shards exchange sums of squares in the update.
TEST(Communication, TrustRatiosOfShardsCostOneLatency) {
  Model model;
  MeshRequest mesh{.axes = {{Axis::kData, 2}}, .rates = {{Axis::kData, kWeights}}};
  mesh.latency[Axis::kData] = 0.5;
  const auto exposed = [&](int zero, bool trust_ratios) {
    mesh.zero.stage = zero;
    mesh.trust_ratios = trust_ratios;
    return model.communication(1, mesh).exposed_seconds[Axis::kData];
  };
  EXPECT_DOUBLE_EQ(exposed(0, true), exposed(0, false));
  EXPECT_NEAR(exposed(1, true), exposed(1, false) + 0.5, 1e-9);
}

// Signs leave in the update: a bit instead of 32, and one latency a layer. The norm is summed over
// the mesh alone.
TEST(Communication, SignsAreSentInUpdate) {
  Model model;
  model.micro_batches = 1;
  MeshRequest mesh{.axes = {{Axis::kData, 2}}, .rates = {{Axis::kData, kWeights}}};
  const double whole = model.communication(1, mesh).ranks[0][Axis::kData].bytes;
  mesh.sends_signs = true;
  const Communication signs = model.communication(1, mesh);
  EXPECT_DOUBLE_EQ(signs.ranks[0][Axis::kData].bytes, whole / 32);
  EXPECT_NEAR(signs.exposed_seconds[Axis::kData], 4 / 32.0, 1e-9);
  mesh.latency[Axis::kData] = 0.5;
  EXPECT_NEAR(model.communication(1, mesh).exposed_seconds[Axis::kData],
              4 / 32.0 + 4 * 0.5 + 2 * 0.5, 1e-9);
  mesh.signs_per_step = 0.25;  // of an average step
  const Communication seldom = model.communication(1, mesh);
  EXPECT_DOUBLE_EQ(seldom.ranks[0][Axis::kData].bytes, whole / 32 / 4);
  EXPECT_NEAR(seldom.exposed_seconds[Axis::kData], (4 / 32.0 + 4 * 0.5) / 4 + 2 * 0.5, 1e-9);
}

// Ranks that share shards add gradients and gather weights; the groups exchange signs, over another
// link.
TEST(Communication, SignsOfShardsAreSentBetweenGroups) {
  Model model;
  model.micro_batches = 1;
  MeshRequest mesh{.axes = {{Axis::kData, 8}},
                   .zero = {.stage = 1, .shard_ranks = 2},
                   .sends_signs = true,
                   .shard_link = LinkSpeed{2 * kWeights, 0},
                   .replica_link = LinkSpeed{kWeights / 4, 0}};
  AxisTraffic sent = model.communication(1, mesh).ranks[0][Axis::kData];
  // Of four layers: half of the gradients and of the weights, and the signs of half, in a sum over
  // four groups.
  const double inside = 4 * kWeights * (0.5 + 0.5);
  const double signs = 4 * kWeights / 2 / 32 * 2 * 3 / 4;
  EXPECT_DOUBLE_EQ(sent.bytes, inside + signs);
  EXPECT_DOUBLE_EQ(sent.seconds, inside / (2 * kWeights) + signs / (kWeights / 4));
  mesh.signs_per_step = 0.25;
  sent = model.communication(1, mesh).ranks[0][Axis::kData];
  EXPECT_DOUBLE_EQ(sent.bytes, inside + signs / 4);
  // Each layer waits for a message between groups; the last sum, its gather and the norm for
  // messages inside a group, and the norm for the whole mesh.
  mesh.signs_per_step = 1;
  const double without = model.communication(1, mesh).exposed_seconds[Axis::kData];
  mesh.replica_link->latency = 0.5;
  EXPECT_NEAR(model.communication(1, mesh).exposed_seconds[Axis::kData] - without, 4 * 0.5, 1e-9);
  mesh.replica_link->latency = 0;
  mesh.shard_link->latency = 0.125;
  EXPECT_NEAR(model.communication(1, mesh).exposed_seconds[Axis::kData] - without, 4 * 0.125, 1e-9);
  // Gradients that are added after each micro-batch send more, signs do not.
  mesh.zero.stage = 2;
  model.micro_batches = 3;
  model.reduce_each = true;
  sent = model.communication(1, mesh).ranks[0][Axis::kData];
  EXPECT_DOUBLE_EQ(sent.bytes, inside + 2 * 4 * kWeights * 0.5 + signs);
}

// An outer step sends what a sum of fp32 gradients sends, once in a round. Ranks along cp add their
// gradients in every step, at their own rate.
TEST(Communication, OuterStepsAreSharedByStepsOfARound) {
  Model model;
  model.micro_batches = 1;
  MeshRequest mesh{.axes = {{Axis::kData, 4}}, .rates = {{Axis::kData, kWeights}}};
  const double whole = model.communication(1, mesh).ranks[0][Axis::kData].bytes;
  mesh.outer_every = 10;
  const Communication apart = model.communication(1, mesh);
  EXPECT_DOUBLE_EQ(apart.ranks[0][Axis::kData].bytes, whole / 10);
  EXPECT_DOUBLE_EQ(apart.ranks[0][Axis::kData].seconds, whole / 10 / kWeights);
  EXPECT_NEAR(apart.exposed_seconds[Axis::kData], 4 * 2 * 3 / 4.0 / 10, 1e-9);  // nothing hides it
  mesh.latency[Axis::kData] = 0.5;
  EXPECT_NEAR(model.communication(1, mesh).exposed_seconds[Axis::kData],
              4 * 2 * 3 / 4.0 / 10 + 4 * 2 * 0.5 / 10 + 2 * 0.5, 1e-9);
  mesh.latency = {};
  mesh.axes[Axis::kContext] = 2;
  mesh.rates[Axis::kContext] = 2 * kWeights;
  const AxisTraffic both = model.communication(1, mesh).ranks[0][Axis::kData];
  const double gradients = 4 * kWeights;  // 2 (n - 1) / n of four layers, n = 2
  EXPECT_DOUBLE_EQ(both.bytes, whole / 10 + gradients);
  EXPECT_DOUBLE_EQ(both.seconds, whole / 10 / kWeights + gradients / (2 * kWeights));
  // One replica has no one to wait for.
  mesh.axes = {};
  EXPECT_EQ(model.communication(1, mesh).ranks[0][Axis::kData].bytes, 0);
}

// Megatron (SC'21), section 3.2: 8 b s h (t - 1) / t elements a block and micro-batch.
TEST(Communication, TensorRanksSendPublishedBytesPerBlock) {
  Model model;
  model.micro_batches = 1;
  const std::int64_t bsh = 1000 / 4;  // a value has bsh elements of fp32
  for (const bool sequence : {false, true}) {
    MeshRequest mesh{.axes = {{Axis::kTensor, 4}}, .sequence_parallel = sequence};
    if (sequence) {
      for (ValueCost& value : model.costs.values) value.bytes = 250;  // the part of one rank
    }
    add_sums_of_blocks(model.costs, 1000);
    const LayerWork& block = model.costs.layers[1].work;
    EXPECT_EQ(all_reduce_bytes(
                  static_cast<double>(block.forward_sum_bytes + block.backward_sum_bytes), 4),
              8 * bsh * 4 * 3 / 4.0);
    const Communication all = model.communication(1, mesh);
    EXPECT_DOUBLE_EQ(all.ranks[0][Axis::kTensor].bytes, 10 * 1000 * 2 * 3 / 4.0);
    EXPECT_NEAR(all.exposed_seconds[Axis::kTensor], all.ranks[0][Axis::kTensor].seconds,
                1e-9);  // nothing hides it
  }
}

TEST(Communication, ReductionsOverlapWithFollowingBackwards) {
  Model model;
  // All-reduces of one layer: kWeights bytes between two replicas.
  MeshRequest mesh{.axes = {{Axis::kData, 2}}, .rates = {{Axis::kData, kWeights / 1.5}}};
  // the last layer's reduction is exposed
  EXPECT_NEAR(model.communication(1, mesh).exposed_seconds[Axis::kData], 1.5, 1e-9);
  mesh.rates[Axis::kData] = kWeights / 3.0;  // slower than a backward, so they queue up
  EXPECT_NEAR(model.communication(1, mesh).exposed_seconds[Axis::kData], 4 * 3 - 3 * 2, 1e-9);
}

TEST(Communication, ExchangedWeightsAreExposed) {
  Model model;
  const MeshRequest mesh{
      .axes = {{Axis::kData, 2}}, .zero = {.stage = 1}, .rates = {{Axis::kData, kWeights / 2.0}}};
  // One second for a layer's gradients, exposed for the last layer only; one second for its
  // weights.
  EXPECT_NEAR(model.communication(1, mesh).exposed_seconds[Axis::kData], 1 + 4, 1e-9);
}

TEST(Communication, FetchOverlapsWithPreviousLayer) {
  Model model;
  model.micro_batches = 1;
  // Half a second per fetch and reduction: only the first fetch and the last reduction are exposed.
  const MeshRequest mesh{
      .axes = {{Axis::kData, 2}}, .zero = {.stage = 3}, .rates = {{Axis::kData, kWeights / 1.0}}};
  EXPECT_NEAR(model.communication(1, mesh).exposed_seconds[Axis::kData], 1.0, 1e-9);
}

TEST(MeshRequest, UpdatesOfShardedStatesTakeTheirShareOfTime) {
  const Model model;
  EXPECT_EQ(with_mesh_seconds(model.costs, {.axes = {{Axis::kData, 4}}, .zero = {.stage = 1}})
                .layers[0]
                .update_seconds,
            0.125);
  EXPECT_EQ(with_mesh_seconds(model.costs, {.axes = {{Axis::kData, 4}}}).layers[0].update_seconds,
            0.5);
}

TEST(MeshRequest, MeasuredTransfersAreKept) {
  Model model;
  model.costs.values[0].transfer_seconds = 0.25;
  const CostTable costs = with_mesh_seconds(model.costs, {.rates = {{Axis::kPipeline, 1000}}});
  EXPECT_EQ(costs.values[0].transfer_seconds, 0.25);
  EXPECT_EQ(costs.values[1].transfer_seconds, 1);
}

}  // namespace
}  // namespace strata
