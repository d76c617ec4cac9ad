// Random runs of a pipeline equal one rank, bit for bit: any schedule, cut, recompute and tier,
// with dropout, clipping and a shorter last micro-batch.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "strata/base/errors.h"
#include "strata/disk/disk_forms_test.h"
#include "strata/train/mesh_run_test.h"

namespace strata {
namespace {

constexpr LayerTiers kPlacements[] = {{},
                                      {Tier::kDevice, Tier::kHost, Tier::kHost},
                                      {Tier::kDevice, Tier::kDevice, Tier::kHost},
                                      {Tier::kHost, Tier::kHost, Tier::kHost},
                                      {Tier::kHost, Tier::kHost, Tier::kDisk},
                                      {Tier::kDisk, Tier::kDisk, Tier::kDisk}};

constexpr ScheduleKind kSchedules[] = {
    ScheduleKind::kGpipe, ScheduleKind::kVertical, ScheduleKind::k1f1b, ScheduleKind::kInterleaved,
    ScheduleKind::kZbH1,  ScheduleKind::kZbH2,     ScheduleKind::kZbv,  ScheduleKind::kVHalf,
    ScheduleKind::kVMin,  ScheduleKind::kDualPipeV};

#ifdef STRATA_SANITIZED
constexpr int kRuns = 20;
#else
constexpr int kRuns = 300;
#endif

class Draw {
 public:
  int number(int low, int high) { return std::uniform_int_distribution<int>(low, high)(random_); }
  template <typename T, std::size_t n>
  T of(const T (&choices)[n]) {
    return choices[number(0, static_cast<int>(n) - 1)];
  }

  MeshCase run() {
    MeshCase c = small_mesh_case({{Axis::kPipeline, number(1, 4)}}, 0, number(0, 1) == 1);
    c.model.layers = 7;
    c.model.skip = number(0, 3) == 0;
    c.schedule = of(kSchedules);
    c.recompute = of({"none", "cheap", "products", "attention", "full", "mixed"});
    c.tiers = of(kPlacements);
    if (c.tiers != LayerTiers{}) c.tiers.activations = of({Tier::kDevice, Tier::kHost});
    c.some_activations = number(0, 1) == 1;
    c.some_layers = number(0, 3) == 0;
    c.window = of({1, 2, 4, 100});
    c.micro_batch = of({1, 2, 3});
    c.precision = of({at::kFloat, at::kFloat, at::kBFloat16});
    c.gradient_buffers = of({0, 1, 2});
    c.steps = 2;
    c.bounds =
        bounds(mesh_model(c).num_layers(), c.mesh[Axis::kPipeline] * tested_stages(c.schedule));
    return c;
  }

 private:
  // A random cut into non-empty stages.
  std::vector<int> bounds(int layers, int stages) {
    std::vector<int> inner;
    for (int layer = 1; layer < layers; ++layer) inner.push_back(layer);
    std::ranges::shuffle(inner, random_);
    inner.resize(stages - 1);
    std::ranges::sort(inner);
    std::vector<int> all{0};
    all.insert(all.end(), inner.begin(), inner.end());
    all.push_back(layers);
    return all;
  }

  std::mt19937 random_{24};
};

// What decides a run's bits.
std::string settings_of(const MeshCase& c) {
  return std::string(c.model.tie ? "tied " : "untied ") + (c.model.skip ? "skip " : "") +
         std::to_string(c.micro_batch) + c10::toString(c.precision);
}

MeshCase on_one_rank(MeshCase c) {
  c.mesh = {};
  c.schedule = ScheduleKind::kGpipe;
  c.recompute = "none";
  c.tiers = {};
  c.bounds = {};
  return c;
}

// Some schedules need more micro-batches than the draw has.
bool is_legal(const MeshCase& c) {
  try {
    mesh_plan(c, mesh_model(c)).training((c.mini_batch + c.micro_batch - 1) / c.micro_batch);
    return true;
  } catch (const UserError&) {
    return false;
  }
}

TEST(RandomRuns, EqualOneRank) {
  DiskScratch folder;
  Draw draw;
  std::map<std::string, MeshRecord> alone;
  std::map<ScheduleKind, int> drawn;
  for (int run = 0, tries = 0; run < kRuns; ++tries) {
    ASSERT_LT(tries, 3 * kRuns);
    MeshCase c = draw.run();
    if (!is_legal(c)) continue;
    c.disk = folder.path("run" + std::to_string(run++));
    SCOPED_TRACE(testing::Message() << "run " << run << ": " << c);
    const auto [known, is_new] = alone.try_emplace(settings_of(c));
    if (is_new) known->second = train_on_mesh(on_one_rank(c));
    expect_same_bits(train_on_mesh(c), known->second);
    if (HasFailure()) return;
    ++drawn[c.schedule];
  }
  if (kRuns == 300) EXPECT_EQ(drawn.size(), std::size(kSchedules));
}

}  // namespace
}  // namespace strata
