#include "strata/plan/search/mesh_search.h"

#include <gtest/gtest.h>

#include "strata/base/errors.h"
#include "strata/plan/example_models_test.h"
#include "strata/plan/search/shared_devices.h"

namespace strata {
namespace {

constexpr std::int64_t kMiB = 1 << 20;

// Eight equal layers; a mini-batch of 16 samples, one per micro-batch. tp divides work and weights.
struct Setting {
  std::int64_t device_bytes = 0;
  std::int64_t weight_bytes = 4 * kMiB;
  AxisRates rates = {};
  MeshLimits limits{.mini_batch = 16, .layers = 8, .heads = 4};
  double update_seconds = 0;
  int devices = 0;  // GPUs that the ranks share round robin; 0: each rank has one
  std::int64_t shared_bytes = 0;

  PlanRequest request_of(const MeshOptions& mesh) const {
    PlanRequest request;
    request.dataflow = chain(8);
    const Mesh& ranks = mesh.axes;
    const int tp = ranks[Axis::kTensor];
    request.costs[Recompute::kCheap] = equal_costs(request.dataflow,
                                                   {.forward_seconds = 10e-3 / tp,
                                                    .backward_seconds = 20e-3 / tp,
                                                    .update_seconds = update_seconds / tp,
                                                    .weight_bytes = weight_bytes / tp,
                                                    .gradient_bytes = weight_bytes / tp,
                                                    .state_bytes = 2 * weight_bytes / tp},
                                                   {.bytes = kMiB});
    if (devices > 0)
      request.costs[Recompute::kCheap].devices = shared_devices(
          ranks, devices_in_turns(ranks.size(), ranks.size(), devices), shared_bytes);
    if (tp > 1) add_sums_of_blocks(request.costs[Recompute::kCheap], kMiB);
    request.costs[Recompute::kNone] = request.costs[Recompute::kCheap];
    request.micro_batches = (16 + ranks[Axis::kData] - 1) / ranks[Axis::kData];
    request.virtual_stages = static_cast<int>(mesh.virtual_stages);
    request.schedule = mesh.schedule;
    request.memory.device.count = device_bytes;
    request.memory.host.count = 1;  // a host without memory
    request.mesh = mesh_request(mesh);
    request.mesh.rates = rates;
    return request;
  }
  MeshSearch search(std::int64_t ranks) const {
    return search_mesh({.automatic = true, .ranks = ranks}, limits,
                       [this](const MeshOptions& mesh) { return request_of(mesh); });
  }
};

TEST(MeshSearch, TriesEveryLegalMesh) {
  const MeshSearch search = Setting().search(4);
  // (1,4,1) x zero 0-3; (1,2,2) x 4; (1,1,4); (2,2,1) x 4 x {1f1b, gpipe, zb-h1, zb, zbv,
  // interleaved 2, 4}; (2,1,2) x these 7; (4,1,1) x {1f1b, gpipe, zb-h1, zb, zbv, interleaved 2}.
  EXPECT_EQ(search.trials.size(), 4u + 4 + 1 + 28 + 7 + 6);
  for (const MeshTrial& trial : search.trials) {
    EXPECT_EQ(trial.mesh.axes.size(), 4);
    EXPECT_FALSE(trial.mesh.automatic);
    EXPECT_FALSE(trial.why.empty());
    EXPECT_TRUE(trial.fits);
  }
}

TEST(MeshSearch, FreeCommunicationPrefersReplicas) {
  const MeshSearch search = Setting().search(4);
  EXPECT_EQ(search.best().axes, (Mesh{{Axis::kData, 4}}));
  EXPECT_EQ(search.best().zero.stage, 0);  // the simplest of equally fast ones
  EXPECT_EQ(search.trials[0].why, "fastest that fits");
}

TEST(MeshSearch, SlowReplicasAndTensorRanksPreferPipeline) {
  Setting setting;
  setting.rates = {{Axis::kPipeline, 1e12}, {Axis::kData, 1e6}, {Axis::kTensor, 1e6}};
  const MeshSearch search = setting.search(4);
  EXPECT_EQ(search.best().axes[Axis::kPipeline], 4);
  EXPECT_EQ(search.best().schedule, ScheduleKind::kInterleaved);
  const std::string text = search_text(search);
  EXPECT_NE(text.find("exchange between replicas"), std::string::npos) << text;
  EXPECT_NE(text.find("sums inside layers"), std::string::npos) << text;
}

TEST(MeshSearch, SmallBudgetShardsOrCuts) {
  Setting setting;
  setting.device_bytes = 60 * kMiB;  // everything needs 128 MiB
  const MeshSearch search = setting.search(4);
  EXPECT_TRUE(search.trials[0].fits);
  EXPECT_LE(search.trials[0].peak_bytes, setting.device_bytes);
  bool over = false;
  for (const MeshTrial& trial : search.trials) {
    over |= trial.mesh.axes[Axis::kData] == 4 && trial.mesh.zero.stage == 0 && !trial.fits &&
            trial.why.find("over the budget") != std::string::npos;
  }
  EXPECT_TRUE(over);
}

TEST(MeshSearch, WinnerIsFastestThatFits) {
  for (const double rate : {0.0, 1e9, 1e7}) {
    Setting setting;
    setting.rates = {{Axis::kPipeline, rate}, {Axis::kData, rate}, {Axis::kTensor, rate}};
    setting.device_bytes = 100 * kMiB;
    const MeshSearch search = setting.search(8);
    for (const MeshTrial& trial : search.trials) {
      if (trial.fits) {
        EXPECT_GE(trial.step_seconds, 0.998 * search.trials[0].step_seconds);
      }
    }
  }
}

TEST(MeshSearch, ShowsEachShapeOnceWithItsReason) {
  Setting setting;
  setting.rates = {{Axis::kPipeline, 1e9}, {Axis::kData, 1e8}, {Axis::kTensor, 1e8}};
  const std::string text = search_text(setting.search(4), 3);
  EXPECT_EQ(text.substr(0, 9), "mesh auto");
  EXPECT_NE(text.find("fastest that fits"), std::string::npos);
  EXPECT_NE(text.find("× as slow: "), std::string::npos);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 2 + 1 + 4);
}

const MeshTrial& trial_of(const MeshSearch& search, const Mesh& mesh, int zero = 0) {
  for (const MeshTrial& trial : search.trials)
    if (trial.mesh.axes == mesh && trial.mesh.zero.stage == zero &&
        trial.mesh.schedule == ScheduleKind::k1f1b)
      return trial;
  ADD_FAILURE() << "no such mesh";
  return search.trials[0];
}

// A micro-batch through all layers is 240 ms of work, an update of all layers 40 ms.
TEST(MeshSearch, SerializesWorkOnSharedGpu) {
  Setting setting{.update_seconds = 5e-3};
  const MeshSearch apart = setting.search(4);
  EXPECT_NEAR(trial_of(apart, {{Axis::kData, 4}}).step_seconds, 4 * 0.24 + 0.04, 1e-9);
  EXPECT_EQ(apart.best().axes, (Mesh{{Axis::kData, 4}}));

  // Each GPU does the work of two ranks. Two replicas of two stages: the work of one whole replica
  // with its update. Four replicas: the work of two, each of which updates everything.
  setting.devices = 2;
  const MeshSearch two = setting.search(4);
  EXPECT_NEAR(trial_of(two, {{Axis::kPipeline, 2}, {Axis::kData, 2}}).step_seconds, 8 * 0.24 + 0.04,
              1e-9);
  EXPECT_NEAR(trial_of(two, {{Axis::kData, 4}}).step_seconds, 2 * (4 * 0.24 + 0.04), 1e-9);
  EXPECT_NEAR(trial_of(two, {{Axis::kData, 4}}).bubble_seconds, 0, 1e-9);
  // GPUs have no bubble
  EXPECT_NEAR(trial_of(two, {{Axis::kPipeline, 2}, {Axis::kData, 2}}).bubble_seconds, 0, 1e-9);
  EXPECT_NEAR(two.trials[0].step_seconds, 8 * 0.24 + 0.02, 0.021);

  // One GPU has all the work under every mesh; only work that replicas repeat makes a difference.
  setting.devices = 1;
  const MeshSearch one = setting.search(4);
  EXPECT_NEAR(trial_of(one, {{Axis::kPipeline, 4}}).step_seconds, 16 * 0.24 + 0.04, 1e-9);
  EXPECT_NEAR(trial_of(one, {{Axis::kData, 4}}).step_seconds, 16 * 0.24 + 4 * 0.04, 1e-9);
  EXPECT_NEAR(one.trials[0].step_seconds, 16 * 0.24 + 0.04, 1e-9);
}

// 32 MiB of weights, 32 of gradients and 64 of states: a replica has 128 MiB plus what it saves for
// backward. Only a mesh that holds one copy leaves memory for that on one GPU.
TEST(MeshSearch, SumsMemoryOfRanksOnSharedGpu) {
  Setting setting{.devices = 1, .shared_bytes = 200 * kMiB};
  const MeshSearch search = setting.search(2);
  const MeshTrial &replicas = trial_of(search, {{Axis::kData, 2}}),
                  &stages = trial_of(search, {{Axis::kPipeline, 2}});
  EXPECT_LT(replicas.peak_bytes, setting.shared_bytes);
  EXPECT_GE(replicas.shared_bytes, 2 * 128 * kMiB);
  EXPECT_FALSE(replicas.fits);
  EXPECT_NE(replicas.why.find("more than a GPU has"), std::string::npos) << replicas.why;
  EXPECT_TRUE(stages.fits);
  EXPECT_GE(stages.shared_bytes, 128 * kMiB);
  EXPECT_TRUE(search.trials[0].fits);
  EXPECT_LE(search.trials[0].shared_bytes, setting.shared_bytes);
  EXPECT_NE(search_text(search).find(format_bytes(search.trials[0].shared_bytes)),
            std::string::npos);

  std::int64_t least = search.trials[0].shared_bytes;
  for (const MeshTrial& trial : search.trials) least = std::min(least, trial.shared_bytes);
  setting.shared_bytes = 100 * kMiB;
  try {
    setting.search(2);
    FAIL() << "a mesh fits";
  } catch (const UserError& error) {
    EXPECT_NE(error.text().fix.find("mesh.ranks to a smaller number"), std::string::npos);
    EXPECT_EQ(error.text().got.rfind("at least " + format_bytes(least) + " (pp ", 0), 0u)
        << error.text().got;
  }
}

TEST(MeshSearch, NamesLeastMemoryIfNothingFits) {
  Setting setting;
  setting.device_bytes = 8 * kMiB;
  try {
    setting.search(4);
    FAIL() << "a mesh fits";
  } catch (const UserError& error) {
    EXPECT_EQ(error.text().operation, "plan.mesh");
    EXPECT_NE(error.text().fix.find("set memory.device="), std::string::npos);
    setting.device_bytes =
        parse_bytes(error.text().fix.substr(18, error.text().fix.find(',') - 18)).count;
    EXPECT_NO_THROW(setting.search(4));
  }
}

TEST(MeshSearch, RejectsIfNoMeshIsLegal) {
  Setting setting;
  setting.limits = {.mini_batch = 2, .layers = 2, .heads = 2};
  EXPECT_THROW(setting.search(7), UserError);
}

TEST(MeshSearch, MeshThatModelRejectsOnlyLoses) {
  const Setting setting;
  const MeshSearch search = search_mesh({.ranks = 4}, setting.limits, [&](const MeshOptions& mesh) {
    if (mesh.axes[Axis::kPipeline] == 1)
      throw UserError({.operation = "test", .what = "no such model"});
    return setting.request_of(mesh);
  });
  EXPECT_NE(search.best().axes[Axis::kPipeline], 1);
  EXPECT_EQ(search.trials.back().why, "no such model");
}

}  // namespace
}  // namespace strata
