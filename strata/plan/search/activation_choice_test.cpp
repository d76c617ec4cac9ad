#include "strata/plan/search/activation_choice.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "strata/plan/example_models_test.h"
#include "strata/plan/search/proposal.h"
#include "strata/plan/text/plan_text.h"

namespace strata {
namespace {

constexpr std::int64_t kMiB = 1 << 20;

// A chain whose weights stay on the device. Saved bytes, inputs and forwards are given; a backward
// takes twice as long as a forward.
struct Block {
  std::int64_t saved_bytes = 8 * kMiB;
  std::int64_t input_bytes = kMiB;
  double forward_seconds = 10e-3;
};

PlanRequest request_of(const std::vector<Block>& blocks, double link_bytes_per_second,
                       int micro_batches = 1, int ranks = 1) {
  PlanRequest request;
  const int layers = static_cast<int>(blocks.size());
  request.dataflow = chain(layers);
  CostTable costs = equal_costs(request.dataflow, {.weight_bytes = kMiB, .gradient_bytes = kMiB});
  for (int l = 0; l < layers; ++l) {
    LayerCost& layer = costs.layers[l];
    layer.saved_bytes = blocks[l].saved_bytes;
    layer.forward_seconds = blocks[l].forward_seconds;
    layer.backward_seconds = 2 * blocks[l].forward_seconds;
    if (l == 0) continue;
    layer.input_bytes = costs.values[l - 1].bytes = blocks[l].input_bytes;
  }
  request.costs[Recompute::kCheap] = request.costs[Recompute::kNone] = costs;
  set_shape(request, {ranks, micro_batches});
  request.schedule = ScheduleKind::kGpipe;
  request.memory = {.recompute = RecomputeMode::kAuto,
                    .weights = TierChoice::kDevice,
                    .states = TierChoice::kDevice,
                    .link_bandwidth = {std::llround(link_bytes_per_second)}};
  return request;
}

Plan with_choice(const PlanRequest& request, const Partition& partition,
                 const ActivationChoice& choice) {
  Choices choices{.partition = partition, .recompute = choice.recompute};
  if (!choice.offload.empty()) {
    choices.tiers.tiers.activations = Tier::kHost;
    choices.tiers.offloaded = choice.offload;
  }
  return evaluate(request, choices);
}

ActivationChoice choice_of(const Plan& plan) {
  ActivationChoice choice{.recompute = {plan.decisions().recompute, plan.decisions().levels}};
  for (const int l : choice.recompute.whole.layers())
    if (plan.decisions().tiers[l].offloads_activations()) choice.offload.add(l);
  return choice;
}

// The fastest plan that fits, over every combination of keeping, recomputing and offloading.
double fastest_of_all(const PlanRequest& request, const Partition& partition) {
  const int layers = request.dataflow.num_layers;
  const int all = static_cast<int>(std::lround(std::pow(3, layers)));
  double fastest = INFINITY;
  for (int code = 0; code < all; ++code) {
    ActivationChoice choice;
    for (int l = 0, rest = code; l < layers; ++l, rest /= 3) {
      if (rest % 3 > 0) choice.recompute.whole.add(l);
      if (rest % 3 > 1) choice.offload.add(l);
    }
    const Plan plan = with_choice(request, partition, choice);
    if (fits(plan)) fastest = std::min(fastest, plan.simulation.step_seconds);
  }
  return fastest;
}

TEST(ActivationChoice, EqualsExhaustiveSearchOnSmallModels) {
  std::mt19937 random(3);
  const auto draw = [&](double low, double high) {
    return std::uniform_real_distribution(low, high)(random);
  };
  int offloading = 0, mixed = 0, fastest = 0;
  constexpr int kTrials = 60;
  for (int trial = 0; trial < kTrials; ++trial) {
    const bool equal = trial % 3 == 0;
    const auto draw_block = [&] {
      return Block{.saved_bytes = std::llround(draw(2, 12) * kMiB),
                   .input_bytes = std::llround(draw(0.5, 4) * kMiB),
                   .forward_seconds = draw(2e-3, 20e-3)};
    };
    std::vector<Block> blocks(5, draw_block());
    if (!equal)
      for (Block& block : blocks) block = draw_block();
    const double rates[] = {50e6, 200e6, 500e6, 5e9};
    const int micro_batches = 1 + trial % 2, ranks = trial % 5 == 4 ? 2 : 1;
    PlanRequest request = request_of(blocks, rates[random() % 4], micro_batches, ranks);
    const Partition cut = equal_stages(5, ranks);
    const LayerSet all = LayerSet::all(5);
    const std::int64_t most = peak_bytes(with_choice(request, cut, {}).ledger);
    const std::int64_t least = peak_bytes(with_choice(request, cut, {{.whole = all}, all}).ledger);
    request.memory.device.count =
        least + std::llround(draw(0, 1) * static_cast<double>(most - least));
    const Plan plan = make_plan(request);
    ASSERT_LE(peak_bytes(plan.ledger), request.memory.device.count);
    const double best = fastest_of_all(request, plan.decisions().partition);
    EXPECT_LE(plan.simulation.step_seconds, 1.02 * best) << trial;
    fastest += plan.simulation.step_seconds <= (1 + 1e-9) * best;
    const ActivationChoice choice = choice_of(plan);
    offloading += !choice.offload.empty();
    mixed += !choice.offload.empty() && choice.offload != choice.recompute.whole &&
             choice.recompute.whole.size() < 5;
  }
  EXPECT_GE(fastest, kTrials * 9 / 10);
  EXPECT_GE(offloading, kTrials / 5);
  EXPECT_GE(mixed, kTrials / 12);
  RecordProperty("fastest", fastest);
  RecordProperty("mixed", mixed);
}

TEST(ActivationChoice, DependsOnLinkBandwidth) {
  const std::vector<Block> blocks(8);
  const auto plan_with = [&](double link, double share) {
    PlanRequest request = request_of(blocks, link);
    const std::int64_t most = peak_bytes(make_plan(request).ledger);
    request.memory.device.count = std::llround(share * static_cast<double>(most));
    return make_plan(request);
  };
  const auto seconds = [](const Plan& plan) { return plan.simulation.step_seconds; };
  // Hidden offloads cost nothing, so one layer fewer is recomputed.
  const Plan fast = plan_with(1e9, 0.5), slow = plan_with(1e6, 0.5);
  EXPECT_FALSE(choice_of(fast).offload.empty());
  EXPECT_TRUE(choice_of(slow).offload.empty());
  EXPECT_LT(choice_of(fast).recompute.whole.size(), choice_of(slow).recompute.whole.size());
  EXPECT_LT(seconds(fast), seconds(slow));
  // If nothing else fits, inputs are offloaded over any link, and no more of them than needed.
  PlanRequest request = request_of(blocks, 1e6);
  const LayerSet all = LayerSet::all(8);
  const Partition cut = equal_stages(8, 1);
  request.memory.device.count =
      peak_bytes(with_choice(request, cut, {{.whole = all}, {}}).ledger) - 1;
  const Plan tight = make_plan(request);
  EXPECT_FALSE(choice_of(tight).offload.empty());
  EXPECT_LT(choice_of(tight).offload.size(), 7);
  request.memory.recompute = RecomputeMode::kFull;
  const Plan full = make_plan(request);
  EXPECT_EQ(choice_of(full).recompute.whole.size(), 8);
  EXPECT_FALSE(choice_of(full).offload.empty());
  EXPECT_LT(choice_of(full).offload.size(), 7);
  // As requested.
  request.memory.activations = TierChoice::kHost;
  EXPECT_EQ(choice_of(make_plan(request)).offload.size(), 8);
  request.memory.activations = TierChoice::kDevice;
  EXPECT_FALSE(fits(propose(request)));
}

TEST(ActivationChoice, IsFollowedByOtherProcesses) {
  PlanRequest request = request_of(std::vector<Block>(8), 1e9);
  request.memory.device.count = 46 * kMiB;
  const Plan plan = make_plan(request);
  ASSERT_FALSE(plan.placement.offloaded.empty());
  ASSERT_NE(plan.placement.offloaded, plan.decisions().recompute);
  PlanRequest other = request;
  other.memory.device.count = 0;
  const Plan followed = follow_plan(other, decisions_text(plan));
  EXPECT_EQ(followed.placement, plan.placement);
  EXPECT_EQ(choice_of(followed), choice_of(plan));
  EXPECT_EQ(followed.schedule().programs, plan.schedule().programs);
}

TEST(ActivationChoice, IsPrintedWithItsCost) {
  PlanRequest request = request_of(std::vector<Block>(8), 1e9);
  request.memory.device.count = 46 * kMiB;
  const std::string text = plan_text(make_plan(request));
  const std::size_t at = text.find("recompute  ");
  EXPECT_EQ(
      text.substr(at, text.find("memory  ", at) - at),
      "recompute  auto: 5 of 8 layers (layer1, layer2, layer3, layer4 and 1 more)\n"
      "offloaded  inputs of 3 whole layers (layer1, layer3, layer5); 3.15 ms of the link each "
      "way, 50 ms of forwards run again\n");
}

// The number of trials stays within its limit for any size of model.
TEST(ActivationChoice, StaysWithinTrialLimit) {
  for (const int most : {1, 20, 200}) {
    const int layers = 300;
    CostTable costs;
    costs.layers.assign(layers, {.forward_seconds = 1, .input_bytes = 1, .saved_bytes = 4});
    const LevelCosts all_levels = costs;
    int trials = 0;
    const ActivationSearch search{
        .costs = all_levels,
        .rank_of_layer = std::vector<int>(layers),
        .device_bytes = 4 * layers / 2,
        .most_trials = most,
        .trial = [&](const ActivationChoice& choice) {
          ++trials;
          const int again = choice.recompute.whole.size(), offloaded = choice.offload.size();
          const int bytes = 4 * (layers - again) + layers - offloaded;
          return ActivationTrial{.fits = bytes <= 4 * layers / 2,
                                 .step_seconds = 3.0 * layers + again + 0.01 * offloaded,
                                 .ledger = {{.peak_bytes = bytes}}};
        }};
    const LayerSet all = LayerSet::all(layers);
    const ActivationChoice chosen = choose_activations(search, {{.whole = all}, {}});
    EXPECT_LE(trials, most + 100);
    EXPECT_LE(4 * (layers - chosen.recompute.whole.size()) + layers - chosen.offload.size(),
              4 * layers / 2);
    if (most == 200) EXPECT_LT(chosen.recompute.whole.size(), 240);
  }
}

}  // namespace
}  // namespace strata
