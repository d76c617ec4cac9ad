#include "strata/plan/search/tier_choice.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "strata/base/errors.h"
#include "strata/plan/example_models_test.h"
#include "strata/plan/search/planner.h"

namespace strata {
namespace {

using enum TierChoice;
using enum ScheduleKind;

constexpr std::int64_t kMiB = 1 << 20;
constexpr LayerTiers kStatesAway{Tier::kDevice, Tier::kHost, Tier::kHost};
constexpr LayerTiers kAllAway{Tier::kHost, Tier::kHost, Tier::kHost};
constexpr LayerTiers kOnlyStatesAway{Tier::kDevice, Tier::kDevice, Tier::kHost};

// Eight equal layers on one rank, with different bytes for each kind of state.
PlanRequest request_of(int layers = 8, int ranks = 1) {
  PlanRequest request;
  request.dataflow = chain(layers);
  request.costs[Recompute::kCheap] = equal_costs(request.dataflow,
                                                 {.forward_seconds = 10e-3,
                                                  .backward_seconds = 20e-3,
                                                  .update_seconds = 1e-3,
                                                  .weight_bytes = 4 * kMiB,
                                                  .gradient_bytes = 4 * kMiB,
                                                  .state_bytes = 8 * kMiB,
                                                  .saved_bytes = kMiB},
                                                 {.bytes = kMiB / 4});
  request.costs[Recompute::kNone] = request.costs[Recompute::kCheap];
  // with more micro-batches, whole gradients accumulate on the device
  set_shape(request, {ranks, 1});
  request.micro_batch = 1;
  request.sample_tokens = 512;
  return request;
}

ErrorText refusal(const MemoryOptions& memory, const MeshOptions& mesh = {}) {
  try {
    check_memory(memory, mesh, [](const std::string& field) { return "recipe.yaml: " + field; });
  } catch (const UserError& error) {
    return error.text();
  }
  return {};
}

TEST(CheckMemory, RejectsStateThatDeviceUpdateCannotReach) {
  EXPECT_EQ(refusal({.weights = kHost, .states = kDevice}).where, "recipe.yaml: memory.weights");
  EXPECT_EQ(refusal({.gradients = kHost, .states = kDevice}).where,
            "recipe.yaml: memory.gradients");
  EXPECT_EQ(refusal({.weights = kHost, .states = kDevice}).fix,
            "set memory.states=host, or memory.weights=device");
  for (const MemoryOptions& legal :
       {MemoryOptions{}, MemoryOptions{.weights = kHost}, MemoryOptions{.states = kHost},
        MemoryOptions{.gradients = kDevice, .states = kHost},
        MemoryOptions{.weights = kHost, .gradients = kDevice, .states = kHost, .window = 3}})
    EXPECT_EQ(refusal(legal).what, "");
}

TEST(CheckMemory, RejectsDiskWithoutPathOrStates) {
  constexpr TierChoice kDisk = TierChoice::kDisk;
  const MemoryDisk disk{.path = "/scratch"};
  EXPECT_EQ(refusal({.states = kDisk}).where, "recipe.yaml: memory.disk.path");
  EXPECT_EQ(refusal({.weights = kDisk}).where, "recipe.yaml: memory.disk.path");
  EXPECT_EQ(refusal({.weights = kDisk, .states = kHost, .disk = disk}).fix,
            "set memory.states=disk, or memory.weights=host");
  EXPECT_EQ(refusal({.weights = kDisk, .states = kDevice, .disk = disk}).where,
            "recipe.yaml: memory.weights");
  EXPECT_EQ(refusal({.gradients = kDisk}).where, "recipe.yaml: memory.disk.path");
  EXPECT_EQ(refusal({.gradients = kDisk, .states = kHost, .disk = disk}).fix,
            "set memory.states=disk, or memory.gradients=host");
  EXPECT_EQ(refusal({.gradients = kDisk, .states = kDisk, .disk = disk}).what, "");
  EXPECT_EQ(refusal({.gradients = kDisk, .disk = disk}).what, "");
}

TEST(CheckMemory, RejectsWindowIfWeightsStay) {
  const MemoryOptions stay{.weights = kDevice, .window = 2};
  EXPECT_EQ(refusal(stay).where, "recipe.yaml: memory.window");
  EXPECT_EQ(refusal({.states = kDevice, .window = 2}).where, "recipe.yaml: memory.window");
  EXPECT_EQ(refusal(stay, {.axes = {{Axis::kData, 2}}, .zero = {.stage = 3}}).what,
            "");                                           // shards leave
  EXPECT_EQ(refusal(stay, {.automatic = true}).what, "");  // the search may shard them
  EXPECT_EQ(refusal({.window = 2}).what, "");
}

std::vector<LayerTiers> tiers_of(const MemoryOptions& memory, bool trains = true) {
  std::vector<LayerTiers> all;
  for (const TierPlacement& placement : tier_placements(memory, trains))
    all.push_back(placement.tiers);
  return all;
}

TEST(TierPlacements, OrderByFewestMoves) {
  using All = std::vector<LayerTiers>;
  EXPECT_EQ(tiers_of({}), (All{{}, kStatesAway, kAllAway}));
  EXPECT_EQ(tiers_of({.states = kDevice}), All{{}});
  EXPECT_EQ(tiers_of({.weights = kDevice}), (All{{}, kStatesAway}));
  EXPECT_EQ(tiers_of({.states = kHost}), (All{kStatesAway, kAllAway}));
  EXPECT_EQ(tiers_of({.gradients = kHost}), (All{kStatesAway, kAllAway}));
  EXPECT_EQ(tiers_of({.weights = kHost}), All{kAllAway});
  EXPECT_EQ(tiers_of({.gradients = kDevice, .states = kHost}),
            (All{kOnlyStatesAway, {Tier::kHost, Tier::kDevice, Tier::kHost}}));
  EXPECT_EQ(tiers_of({.weights = kHost}, /*trains=*/false), All{{}});
}

TEST(TierPlacements, UseDiskLastAndOnlyIfConfigured) {
  using All = std::vector<LayerTiers>;
  const MemoryDisk disk{.path = "/scratch"};
  constexpr LayerTiers kStatesOnDisk{Tier::kDevice, Tier::kHost, Tier::kDisk};
  constexpr LayerTiers kWeightsOnHost{Tier::kHost, Tier::kHost, Tier::kDisk};
  constexpr LayerTiers kAllOnDisk{Tier::kDisk, Tier::kHost, Tier::kDisk};
  constexpr LayerTiers kEverything{Tier::kDisk, Tier::kDisk, Tier::kDisk};
  EXPECT_EQ(
      tiers_of({.disk = disk}),
      (All{{}, kStatesAway, kAllAway, kStatesOnDisk, kWeightsOnHost, kAllOnDisk, kEverything}));
  EXPECT_EQ(tiers_of({.states = TierChoice::kDisk, .disk = disk}),
            (All{kStatesOnDisk, kWeightsOnHost, kAllOnDisk, kEverything}));
  EXPECT_EQ(tiers_of({.weights = TierChoice::kDisk, .disk = disk}), (All{kAllOnDisk, kEverything}));
  EXPECT_EQ(tiers_of({.weights = TierChoice::kDisk, .gradients = kHost, .disk = disk}),
            All{kAllOnDisk});
  EXPECT_EQ(tiers_of({.gradients = TierChoice::kDisk, .disk = disk}),
            (All{{Tier::kDevice, Tier::kDisk, Tier::kDisk},
                 {Tier::kHost, Tier::kDisk, Tier::kDisk},
                 kEverything}));
  EXPECT_EQ(tiers_of({.weights = kHost, .disk = disk}), (All{kAllAway, kWeightsOnHost}));
  EXPECT_EQ(tiers_of({.states = kHost, .disk = disk}), (All{kStatesAway, kAllAway}));
  EXPECT_EQ(tiers_of({.disk = disk}, /*trains=*/false), All{{}});
  EXPECT_EQ(placement_text({.tiers = kAllOnDisk}),
            "gradients on the host, weights and states on the disk");
  EXPECT_EQ(placement_text({.tiers = kAllAway}), "weights, gradients and states on the host");
  EXPECT_EQ(placement_text({}), "");
}

TEST(TierPlacements, EveryLegalChoiceHasOne) {
  for (const TierChoice weights : {kAuto, kDevice, kHost})
    for (const TierChoice gradients : {kAuto, kDevice, kHost})
      for (const TierChoice states : {kAuto, kDevice, kHost}) {
        const MemoryOptions memory{
            .weights = weights, .gradients = gradients, .states = states, .window = 0};
        if (!refusal(memory).what.empty()) continue;
        for (const LayerTiers& tiers : tiers_of(memory)) {
          EXPECT_TRUE(weights == kAuto || tiers.fetches_weights() == (weights == kHost));
          EXPECT_TRUE(gradients == kAuto || tiers.offloads_gradients() == (gradients == kHost));
          EXPECT_TRUE(states == kAuto || tiers.updates_on_host() == (states == kHost));
          EXPECT_TRUE(tiers.updates_on_host() ||
                      (!tiers.fetches_weights() && !tiers.offloads_gradients()));
        }
        EXPECT_FALSE(tiers_of(memory).empty());
      }
}

TEST(TierLayout, WithoutOffloadEqualsSingleTier) {
  EXPECT_EQ(tier_layout({}, 2, true), TierLayout{});
  // for sharded weights
  EXPECT_EQ(tier_layout({.window = 5}, 2, true), TierLayout{.window = 5});
  const TierLayout away = tier_layout({.tiers = kStatesAway, .window = 3}, 2, true);
  EXPECT_EQ(away.layers, (std::vector<LayerTiers>{kStatesAway, kStatesAway}));
  EXPECT_EQ(away.window, 3);
  EXPECT_TRUE(away.updates_at_once);
}

TEST(TierLayout, MostFetchedCountsFullestRank) {
  const TierLayout layout{.layers = {kAllAway, kAllAway, {}, kAllAway}};
  EXPECT_EQ(most_fetched(layout, {0, 0, 0, 0}), 3);
  EXPECT_EQ(most_fetched(layout, {0, 0, 1, 1}), 2);
}

// The ledger counts what the ranks run, not what was requested.
TEST(TierLayout, AdaptsToRanksOfPlan) {
  PlanRequest request = request_of(4, 2);
  request.dataflow.ties.push_back({.name = "table", .owner = 0, .users = {3}});
  request.memory = {.weights = kHost, .gradients = kDevice};
  const Plan pipeline = make_plan(request);
  const TierLayout& tiers = pipeline.steps.decisions().tiers;
  EXPECT_FALSE(tiers[0].fetches_weights());
  EXPECT_TRUE(tiers[1].fetches_weights());
  EXPECT_EQ(pipeline.ledger[0].at_peak[ByteKind::kWeights], 4 * kMiB);  // the tied layer's

  request.mesh.axes[Axis::kPipeline] = 1;
  request.mesh.axes[Axis::kData] =
      2;  // a reduction moves gradients to the host even if they may stay
  const Plan replicas = make_plan(request);
  EXPECT_FALSE(replicas.steps.decisions().tiers[0].offloads_gradients());
  EXPECT_TRUE(replicas.steps.decisions().tiers[1].offloads_gradients());
  // gradients of the tied layers
  EXPECT_EQ(replicas.ledger[0].timeline.front().bytes, 8 * kMiB);
}

TEST(LargestWindow, IsBisected) {
  for (int most = 1; most <= 40; ++most) {
    for (int limit = 0; limit <= most; ++limit) {
      int calls = 0;
      const int found = largest_window(most, [&](int window) {
        ++calls;
        EXPECT_GE(window, 1);
        EXPECT_LE(window, most);
        return window <= limit;
      });
      EXPECT_EQ(found, limit);
      EXPECT_LE(calls, 7);
    }
  }
}

bool is_planned(const PlanRequest& request) {
  try {
    const Plan plan = make_plan(request);
    EXPECT_TRUE(request.memory.device.count == 0 ||
                peak_bytes(plan.ledger) <= request.memory.device.count);
    EXPECT_TRUE(request.memory.host.count == 0 ||
                host_bytes(plan.ledger) <= request.memory.host.count);
    return true;
  } catch (const UserError&) {
    return false;
  }
}

TEST(TierChoice, KeepsEverythingOnDeviceIfItFits) {
  PlanRequest request = request_of();
  const std::int64_t peak = peak_bytes(make_plan(request).ledger);
  request.memory.device.count = peak;
  EXPECT_TRUE(make_plan(request).decisions().tiers.layers.empty());
  request.memory.recompute = RecomputeMode::kAuto;
  request.memory.device.count = peak - kMiB;
  const Plan twice = make_plan(request);
  EXPECT_TRUE(twice.decisions().tiers.layers.empty());
  EXPECT_FALSE(twice.decisions().recompute.empty());
}

TEST(TierChoice, MovesStatesAndGradientsBeforeWeights) {
  PlanRequest request = request_of();
  request.memory.device.count = 60 * kMiB;  // everything takes 128 MiB plus what layers save
  const Plan states = make_plan(request);
  EXPECT_EQ(states.decisions().tiers.layers, std::vector(8, kStatesAway));
  EXPECT_EQ(states.ledger[0].host, (HostBytes{32 * kMiB, 32 * kMiB, 64 * kMiB}));
  EXPECT_EQ(states.ledger[0].at_peak[ByteKind::kStates], 0);

  int last = 8;
  for (const std::int64_t mebibytes : {50, 40, 32, 24}) {
    request.memory.device.count = mebibytes * kMiB;
    const Plan plan = make_plan(request);
    EXPECT_LE(peak_bytes(plan.ledger), request.memory.device.count);
    ASSERT_EQ(plan.decisions().tiers.layers.size(), 8u);
    const TierLayout& tiers = plan.decisions().tiers;
    if (!tiers[0].fetches_weights()) continue;
    EXPECT_LE(tiers.window, last);
    last = tiers.window;
    // One more layer does not fit.
    request.memory.window = tiers.window + 1;
    request.memory.weights = kHost;
    if (tiers.window < 8) EXPECT_FALSE(is_planned(request));
    request.memory.window = 0;
    request.memory.weights = kAuto;
  }
  EXPECT_LT(last, 4);
}

TEST(TierChoice, PlanKeepsFittingWithMoreMemory) {
  for (const RecomputeMode recompute : {RecomputeMode::kCheap, RecomputeMode::kAuto}) {
    for (const int ranks : {1, 2}) {
      bool fits = false;
      for (std::int64_t kibibytes = 4 * 1024; kibibytes <= 140 * 1024; kibibytes += 1777) {
        PlanRequest request = request_of(8, ranks);
        request.dataflow.ties.push_back({.name = "table", .owner = 0, .users = {7}});
        request.costs[Recompute::kCheap].layers[7].replica_bytes = 4 * kMiB;
        request.memory = {.device = {kibibytes * 1024}, .recompute = recompute};
        const bool now = is_planned(request);
        EXPECT_GE(now, fits) << kibibytes << " KiB on " << ranks;
        fits = now;
      }
      EXPECT_TRUE(fits);
    }
  }
}

TEST(TierChoice, RejectsBudgetJustBelowPeakOfFixedPlan) {
  for (const int window : {1, 2, 4, 8}) {
    PlanRequest request = request_of();
    request.memory = {.weights = kHost, .window = window};
    const Plan plan = make_plan(request);
    request.memory.device.count = peak_bytes(plan.ledger);
    request.memory.host.count = host_bytes(plan.ledger);
    EXPECT_TRUE(is_planned(request)) << window;
    request.memory.device.count = peak_bytes(plan.ledger) * 97 / 100;
    EXPECT_FALSE(is_planned(request)) << window;
    request.memory.device.count = peak_bytes(plan.ledger);
    request.memory.host.count -= 1;
    EXPECT_FALSE(is_planned(request)) << window;
  }
}

// 32 MiB of weights and of gradients, 64 of states, in 8 layers.
TEST(TierChoice, FallsThroughDeviceHostAndDisk) {
  PlanRequest request = request_of();
  request.memory.device.count = 24 * kMiB;
  request.memory.disk.path = "/scratch";
  const auto tiers_with = [&](std::int64_t host_mebibytes) {
    request.memory.host.count = host_mebibytes * kMiB;
    const Plan plan = make_plan(request);
    EXPECT_LE(host_bytes(plan.ledger), request.memory.host.count);
    EXPECT_LE(peak_bytes(plan.ledger), request.memory.device.count);
    return plan.decisions().tiers[0];
  };
  EXPECT_EQ(tiers_with(128), kAllAway);
  // Weights, gradients, three staging buffers of states and 4 MiB for copying weights to the disk;
  // then gradients and the staging buffers of weights, too.
  EXPECT_EQ(tiers_with(127), (LayerTiers{Tier::kHost, Tier::kHost, Tier::kDisk}));
  EXPECT_EQ(tiers_with(64 + 3 * 8 + 4), (LayerTiers{Tier::kHost, Tier::kHost, Tier::kDisk}));
  EXPECT_EQ(tiers_with(64 + 3 * 8 + 4 - 1), (LayerTiers{Tier::kDisk, Tier::kHost, Tier::kDisk}));
  EXPECT_EQ(tiers_with(32 + 3 * 12 + 2 * 4), (LayerTiers{Tier::kDisk, Tier::kHost, Tier::kDisk}));
  // Then three staging buffers instead of all gradients.
  constexpr LayerTiers kEverything{Tier::kDisk, Tier::kDisk, Tier::kDisk};
  EXPECT_EQ(tiers_with(32 + 3 * 12 + 2 * 4 - 1), kEverything);
  EXPECT_EQ(tiers_with(3 * 4 + 3 * 12 + 2 * 4), kEverything);
  request.memory.host.count = (3 * 4 + 3 * 12 + 2 * 4) * kMiB - 1;
  EXPECT_FALSE(is_planned(request));
  request.memory.host.count += 1;
  request.memory.disk.bytes.count = (2 * 96 + 32) * kMiB;  // and one slot of gradients
  EXPECT_TRUE(is_planned(request));
  request.memory.disk.bytes.count -= 1;
  EXPECT_FALSE(is_planned(request));
  request.memory.host.count = (32 + 3 * 12 + 2 * 4) * kMiB;
  request.memory.disk.bytes.count = 2 * 96 * kMiB;  // two slots of weights and states
  EXPECT_TRUE(is_planned(request));
  request.memory.disk.bytes.count -= 1;
  EXPECT_FALSE(is_planned(request));
}

// They pass two buffers of the host instead, which layers share.
TEST(TierChoice, GradientsConsumedAtOnceDoNotGoToDisk) {
  PlanRequest request = request_of();
  request.memory.gradients = TierChoice::kDisk;
  request.memory.disk.path = "/scratch";
  for (const bool at_once : {false, true}) {
    request.updates_at_once = at_once;
    const Plan plan = make_plan(request);
    EXPECT_EQ(plan.decisions().tiers[0].gradients, at_once ? Tier::kHost : Tier::kDisk);
    EXPECT_EQ(plan.ledger[0].on_disk.gradients, at_once ? 0 : 32 * kMiB);
    EXPECT_EQ(plan.ledger[0].host.gradients, at_once ? 2 * 4 * kMiB : 0);
  }
}

TEST(TierRefusal, NamesDiskThatIsTooSmall) {
  PlanRequest request = request_of();
  request.memory = {.device = {24 * kMiB}, .host = {100 * kMiB}, .states = TierChoice::kDisk};
  request.memory.disk = {.path = "/scratch", .bytes = {100 * kMiB}};
  try {
    make_plan(request);
    FAIL();
  } catch (const UserError& error) {
    const ErrorText& text = error.text();
    EXPECT_NE(text.what.find("than memory.disk.bytes allows"), std::string::npos) << text.what;
    EXPECT_NE(text.got.find("MiB on disk of rank  weights  states  files  budget\n"
                            "                  0     32.0    64.0  192.0   192 %"),
              std::string::npos)
        << text.got;
    EXPECT_NE(text.expected.find("100.00 MiB of its disk"), std::string::npos);
    EXPECT_EQ(text.expected.rfind("at most ", 0), 0u) << text.expected;
  }
  request.memory.disk.path = "FOLDER";  // the placeholder of the proposed fix
  request.memory.disk.bytes = {};
  EXPECT_TRUE(is_planned(request));
}

TEST(TierChoice, WindowWithoutBudgetHoldsAllLayers) {
  PlanRequest request = request_of();
  request.memory.weights = kHost;
  EXPECT_EQ(make_plan(request).decisions().tiers.window, 8);
  request.memory.window = 3;
  EXPECT_EQ(make_plan(request).decisions().tiers.window, 3);
}

TEST(TierChoice, RecomputeFreesMemoryForWindow) {
  PlanRequest request = request_of(16);
  for (LayerCost& layer : request.costs[Recompute::kCheap].layers) layer.saved_bytes = 6 * kMiB;
  request.memory = {.device = {56 * kMiB}, .recompute = RecomputeMode::kCheap};
  EXPECT_FALSE(is_planned(request));  // the saved bytes alone are 96 MiB
  request.memory.recompute = RecomputeMode::kAuto;
  const Plan plan = make_plan(request);
  EXPECT_LE(peak_bytes(plan.ledger), request.memory.device.count);
  EXPECT_FALSE(plan.decisions().recompute.empty());
  EXPECT_TRUE(plan.decisions().tiers[0].fetches_weights());
}

// Inputs of recomputed layers leave after everything else.
TEST(TierChoice, OffloadsActivationsLast) {
  PlanRequest request = request_of(16);
  for (ValueCost& value : request.costs[Recompute::kCheap].values) value.bytes = 2 * kMiB;
  request.memory = {.device = {64 * kMiB}, .recompute = RecomputeMode::kFull};
  const Plan kept = make_plan(request);
  EXPECT_TRUE(kept.placement.tiers.fetches_weights());
  EXPECT_FALSE(kept.placement.tiers.offloads_activations());
  request.memory.activations = kHost;
  const Plan away = make_plan(request);
  EXPECT_LT(peak_bytes(away.ledger), request.memory.device.count);
  request.memory.activations = kDevice;
  request.memory.window = 1;
  const std::int64_t least = peak_bytes(make_plan(request).ledger);
  request.memory.device.count = least - 1;
  EXPECT_FALSE(is_planned(request));
  request.memory.activations = kAuto;
  const Plan all = make_plan(request);
  EXPECT_TRUE(all.placement.tiers.offloads_activations());
  EXPECT_GT(all.ledger[0].host.activations, 0);
  EXPECT_EQ(follow_plan(request, decisions_text(all)).placement, all.placement);
  request.memory.recompute = RecomputeMode::kCheap;  // nothing is recomputed
  EXPECT_FALSE(is_planned(request));
}

TEST(TierChoice, UpdatesAtOnceOnlyIfNothingNeedsAllGradients) {
  for (const bool at_once : {false, true}) {
    PlanRequest request = request_of();
    request.memory.states = kHost;
    request.updates_at_once = at_once;
    const Plan plan = make_plan(request);
    EXPECT_EQ(plan.decisions().tiers.updates_at_once, at_once);
    const Program& program = plan.schedule().programs[0];
    const auto first = [&](Op op) {
      return std::ranges::find_if(program, [&](const Action& a) { return a.op == op; });
    };
    EXPECT_EQ(first(Op::kUpdate) < first(Op::kReduceNormAndLoss), at_once);
  }
}

// If host memory is scarce, gradients that are consumed at once share two buffers.
TEST(TierChoice, GradientsShareBuffersOnSmallHost) {
  PlanRequest request = request_of();
  request.memory = {.weights = kHost, .states = kHost};
  request.updates_at_once = true;
  const Plan roomy = make_plan(request);
  EXPECT_EQ(roomy.decisions().tiers.gradient_buffers, 0);
  request.memory.host.count = host_bytes(roomy.ledger) - 1;
  const Plan tight = make_plan(request);
  EXPECT_EQ(tight.decisions().tiers.gradient_buffers, 2);
  EXPECT_LT(host_bytes(tight.ledger), host_bytes(roomy.ledger));
  EXPECT_EQ(follow_plan(request, decisions_text(tight)).decisions().tiers, tight.decisions().tiers);
  request.updates_at_once = false;
  EXPECT_FALSE(is_planned(request));
}

TEST(TierChoice, IsFollowedByProcessesWithOtherMeasurements) {
  PlanRequest request = request_of(8, 2);
  request.memory.device.count = 20 * kMiB;
  const Plan plan = make_plan(request);
  ASSERT_TRUE(plan.placement.tiers.fetches_weights());
  PlanRequest other = request;
  other.memory.device.count = 0;
  EXPECT_FALSE(make_plan(other).placement.leaves_device());
  const Plan followed = follow_plan(other, decisions_text(plan));
  EXPECT_EQ(followed.placement, plan.placement);
  EXPECT_EQ(followed.decisions().tiers, plan.decisions().tiers);
  EXPECT_EQ(followed.schedule().programs, plan.schedule().programs);
}

TEST(TierRefusal, NamesSettingsThatFit) {
  // Only the device is allowed; the fix allows the host.
  PlanRequest request = request_of();
  request.memory = {.device = {60 * kMiB}, .states = kDevice};
  try {
    make_plan(request);
    FAIL();
  } catch (const UserError& error) {
    EXPECT_EQ(error.text().fix, "set memory.states=auto");
    EXPECT_EQ(error.text().got.find("on host"), std::string::npos);
  }
  request.memory.states = kAuto;
  EXPECT_TRUE(is_planned(request));

  // A host that is too small for what does not fit the device.
  request.memory.host.count = 100 * kMiB;
  try {
    make_plan(request);
    FAIL();
  } catch (const UserError& error) {
    const ErrorText& text = error.text();
    EXPECT_NE(text.what.find("than memory.host allows"), std::string::npos) << text.what;
    EXPECT_NE(text.where.find("gradients and states on the host"), std::string::npos) << text.where;
    EXPECT_NE(text.got.find("MiB on host of rank"), std::string::npos) << text.got;
    EXPECT_NE(text.expected.find("100.00 MiB of its host's memory"), std::string::npos);
    EXPECT_NE(text.fix.find("memory.disk.path=FOLDER (on a disk)"), std::string::npos) << text.fix;
  }

  // Only more of both helps.
  request = request_of(2, 2);
  request.memory = {.device = {2 * kMiB}, .host = {2 * kMiB}};
  try {
    make_plan(request);
    FAIL();
  } catch (const UserError& error) {
    const std::string& fix = error.text().fix;
    EXPECT_NE(fix.find("memory.device="), std::string::npos) << fix;
    const auto value_of = [&](const std::string& name) {
      const std::size_t at = fix.find(name + "=");
      if (at == std::string::npos) return Bytes{2 * kMiB};
      const std::size_t begin = at + name.size() + 1;
      return parse_bytes(fix.substr(begin, fix.find(' ', begin) - begin));
    };
    request.memory.device = value_of("memory.device");
    request.memory.host = value_of("memory.host");
    request.memory.recompute = RecomputeMode::kAuto;
    EXPECT_TRUE(is_planned(request)) << fix;
  }
}

}  // namespace
}  // namespace strata
