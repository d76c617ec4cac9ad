// Tests training in bf16 and fp16: close to fp32, the same bits for any cut of the model, and an
// adapting loss scale.
#include <ATen/ops/equal.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <mutex>

#include "strata/base/scratch_folder.h"
#include "strata/checkpoint/named_state.h"
#include "strata/checkpoint/saver.h"
#include "strata/comm/ranks.h"
#include "strata/disk/disk_forms_test.h"
#include "strata/train/mesh_run_test.h"
#include "strata/train/trainer.h"

namespace strata {
namespace {

MeshCase small_case(at::ScalarType precision, DecoderKind kind = DecoderKind::kGpt) {
  MeshCase c;
  c.model = {.kind = kind, .layers = 2, .width = 32, .heads = 4, .vocab = 48, .context = 16};
  if (kind == DecoderKind::kLlama) {
    c.model.kv_heads = 2;
    c.model.mlp_width = 64;
  } else {
    c.model.dropout = 0.1;
  }
  c.precision = precision;
  c.steps = 10;
  return c;
}

class TrainingIn : public testing::TestWithParam<at::ScalarType> {
 protected:
  static at::ScalarType precision() { return GetParam(); }
};

// Bound for a loss, a norm (ten times that) and a step of the learning rate.
double distance(at::ScalarType precision) { return precision == at::kBFloat16 ? 2e-3 : 3e-4; }

TEST_P(TrainingIn, IsCloseToFp32) {
  for (const DecoderKind kind : {DecoderKind::kGpt, DecoderKind::kLlama}) {
    SCOPED_TRACE(name_of(kind));
    MeshCase c = small_case(precision(), kind);
    const MeshRecord run = train_on_mesh(c);
    c.precision = at::kFloat;
    expect_close(run, train_on_mesh(c), distance(precision()), 1e-2);
  }
}

TEST_P(TrainingIn, HasSameBitsForAnyCut) { expect_same_bits_for_any_cut(small_case(precision())); }

TEST_P(TrainingIn, HasSameBitsInEveryZeroStage) {
  MeshCase replicas = small_case(precision());
  replicas.mesh[Axis::kData] = 2;
  expect_same_bits_in_every_zero_stage(replicas);
}

TEST_P(TrainingIn, HasSameBitsWithAllFeatures) {
  for (const DecoderKind kind : {DecoderKind::kGpt, DecoderKind::kLlama}) {
    MeshCase plain = small_case(precision(), kind);
    plain.mesh = {{Axis::kPipeline, 1}, {Axis::kData, 2}, {Axis::kTensor, 2}};
    plain.sequence = true;
    plain.steps = 3;
    plain.label_smoothing = 0.1;
    plain.zero = 2;
    plain.reduce_each = true;
    MeshCase c = plain;
    c.mesh[Axis::kPipeline] = 2;
    c.zero = 3;
    c.schedule = ScheduleKind::kInterleaved;
    c.recompute = "mixed";
    SCOPED_TRACE(testing::Message() << c);
    expect_same_bits(train_on_mesh(c), train_on_mesh(plain));
  }
}

TEST_P(TrainingIn, IsCloseToFp32WithTensorParallelRanks) {
  for (const DecoderKind kind : {DecoderKind::kGpt, DecoderKind::kLlama}) {
    for (const bool sequence : {false, true}) {
      MeshCase c = small_case(precision(), kind);
      c.mesh[Axis::kTensor] = 2;
      c.sequence = sequence;
      SCOPED_TRACE(testing::Message() << c);
      const MeshRecord run = train_on_mesh(c);
      MeshCase whole = small_case(at::kFloat, kind);
      expect_close(run, train_on_mesh(whole), distance(precision()), 1e-2);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Halves, TrainingIn, testing::Values(at::kBFloat16, at::kHalf),
                         [](const auto& info) { return std::string(c10::toString(info.param)); });

// ---- The loss scale

constexpr double kTooHigh = 0x1p30;  // gradients at the logits overflow

// Sets the loss scale, layer by layer: states on a disk are in memory for one layer at a time.
void set_scale(Trainer& trainer, double scale, std::int64_t good_steps = 0) {
  bool found = false;
  trainer.fill([&](const std::vector<NamedState>&, const std::vector<NamedState>& slots) {
    for (const NamedState& state : slots) {
      if (state.name != "loss_scale") continue;
      state.local[0].fill_(scale);
      state.local[1].fill_(good_steps);
      found = true;
    }
  });
  EXPECT_TRUE(found);
}

// On rank 0.
double scale_of(Trainer& trainer) {
  for (const NamedState& state : trainer.owned_slots(trainer.layers().front()))
    if (state.name == "loss_scale") return state.local[0].item<double>();
  throw std::runtime_error("no loss scale among the states");
}

struct Step {
  double loss;
  double norm;
  bool skipped;
  double scale;  // after the step
};

struct Course {
  std::vector<Step> steps;
  std::map<std::string, at::Tensor> weights;
};

// Calls `prepare` with each rank's trainer, runs the steps up to c.steps, then calls `finish`.
Course run_steps(const MeshCase& c, const std::function<void(Trainer&)>& prepare,
                 const std::function<void(Trainer&)>& finish = {}) {
  const Sequential model = mesh_model(c);
  const StepPlan plan = mesh_plan(c, model);
  Course run;
  std::mutex mutex;
  run_thread_ranks({.ranks = c.mesh.size()}, [&](Group& group, MemoryAccount&) {
    Trainer trainer(model, plan, group, mesh_options(c));
    prepare(trainer);
    while (trainer.steps_done() < c.steps) {
      const MiniBatch batch = mesh_batch(c, static_cast<int>(trainer.steps_done()));
      const StepOutcome outcome = trainer.step(batch, 1e-2);
      if (group.rank() > 0) continue;
      const double scale = c.precision == at::kHalf ? scale_of(trainer) : 1.0;
      run.steps.push_back({outcome.loss, outcome.gradient_norm, outcome.skipped, scale});
    }
    if (finish) finish(trainer);
    const std::lock_guard lock(mutex);
    for (const int layer : trainer.layers()) assemble(trainer.owned_weights(layer), run.weights);
  });
  return run;
}

void start_too_high(Trainer& trainer) {
  trainer.initialise();
  set_scale(trainer, kTooHigh);
}

TEST(LossScaling, SkipsUpdatesAndHalvesScaleUntilGradientsAreFinite) {
  MeshCase c = small_case(at::kHalf);
  c.steps = 1;
  const Course first = run_steps(c, start_too_high);
  c.steps = 0;
  const Course none = run_steps(c, [](Trainer& trainer) { trainer.initialise(); });
  for (const auto& [name, weight] : none.weights)
    EXPECT_TRUE(at::equal(first.weights.at(name), weight)) << name;

  c.steps = 20;
  const Course run = run_steps(c, start_too_high);
  std::size_t skipped = 0;
  while (skipped < run.steps.size() && run.steps[skipped].skipped) ++skipped;
  EXPECT_GE(skipped, 3u);
  ASSERT_LT(skipped, run.steps.size());
  for (std::size_t i = 0; i < run.steps.size(); ++i) {
    EXPECT_EQ(run.steps[i].skipped, i < skipped) << i;
    EXPECT_EQ(run.steps[i].scale,
              std::ldexp(kTooHigh, -static_cast<int>(std::min(i + 1, skipped))));
    EXPECT_EQ(std::isfinite(run.steps[i].norm), i >= skipped) << i;
    EXPECT_TRUE(std::isfinite(run.steps[i].loss)) << i;
  }
}

TEST(LossScaling, GrowsAfterManyGoodSteps) {
  MeshCase c = small_case(at::kHalf);
  c.steps = 2;
  const Course run = run_steps(c, [](Trainer& trainer) {
    trainer.initialise();
    set_scale(trainer, 256, LossScale::kGrowthSteps - 2);
  });
  EXPECT_EQ(run.steps[0].scale, 256);
  EXPECT_EQ(run.steps[1].scale, 512);
}

// AdamW's bias correction counts updates: the first one after skipped steps is update 1.
TEST(LossScaling, SkippedStepsAreNotUpdates) {
  MeshCase c = small_case(at::kHalf);
  c.model.dropout = 0;
  const Sequential model = mesh_model(c);
  const StepPlan plan = mesh_plan(c, model);
  run_thread_ranks({.ranks = 1}, [&](Group& group, MemoryAccount&) {
    const MiniBatch batch = mesh_batch(c, 0);
    Trainer late(model, plan, group, mesh_options(c));
    start_too_high(late);
    int skipped = 0;
    while (late.step(batch, 1e-2).skipped) ++skipped;
    EXPECT_GE(skipped, 3);

    Trainer first(model, plan, group, mesh_options(c));
    first.initialise();
    set_scale(first, std::ldexp(kTooHigh, -skipped));
    EXPECT_FALSE(first.step(batch, 1e-2).skipped);
    const std::vector<NamedState> a = late.weights(), b = first.weights();
    for (std::size_t i = 0; i < a.size(); ++i)
      EXPECT_TRUE(at::equal(a[i].values(), b[i].values())) << a[i].name;
  });
}

// The skipped steps leave gradients that are not finite and states that no update has written.
void expect_skips_as_in_memory(MeshCase c, const Course& in_memory) {
  SCOPED_TRACE(testing::Message() << c);
  const Course course = run_steps(c, start_too_high);
  ASSERT_EQ(course.steps.size(), in_memory.steps.size());
  for (std::size_t i = 0; i < in_memory.steps.size(); ++i) {
    EXPECT_EQ(course.steps[i].skipped, in_memory.steps[i].skipped) << i;
    EXPECT_EQ(course.steps[i].loss, in_memory.steps[i].loss) << i;
    EXPECT_EQ(course.steps[i].scale, in_memory.steps[i].scale) << i;
  }
  for (const auto& [name, weight] : in_memory.weights)
    EXPECT_TRUE(at::equal(course.weights.at(name), weight)) << name;
}

TEST(LossScaling, SkipsUpdatesOnHost) {
  MeshCase c = small_case(at::kHalf);
  const Course in_memory = run_steps(c, start_too_high);
  EXPECT_TRUE(in_memory.steps.front().skipped);
  EXPECT_FALSE(in_memory.steps.back().skipped);
  for (const Tier weights : {Tier::kDevice, Tier::kHost}) {
    c.tiers = {weights, Tier::kHost, Tier::kHost};
    expect_skips_as_in_memory(c, in_memory);
  }
}

TEST(LossScaling, SkipsUpdatesOnDisk) {
  for (const Mesh& mesh : {Mesh{}, Mesh{{Axis::kData, 2}}}) {
    MeshCase c = small_case(at::kHalf);
    c.mesh = mesh;
    const Course in_memory = run_steps(c, start_too_high);
    EXPECT_TRUE(in_memory.steps.front().skipped);
    EXPECT_FALSE(in_memory.steps.back().skipped);
    for (const Tier weights : {Tier::kDevice, Tier::kDisk}) {
      for (const Tier gradients : {Tier::kHost, Tier::kDisk}) {
        const DiskScratch folder;
        c.disk = folder.path("run");
        c.tiers = {weights, gradients, Tier::kDisk};
        expect_skips_as_in_memory(c, in_memory);
      }
    }
  }
}

TEST(LossScaling, IsEqualOnEveryMesh) {
  MeshCase c = small_case(at::kHalf);
  const Course alone = run_steps(c, start_too_high);
  c.mesh[Axis::kPipeline] = 2;
  c.schedule = ScheduleKind::k1f1b;
  const Course cut = run_steps(c, start_too_high);
  ASSERT_EQ(cut.steps.size(), alone.steps.size());
  for (std::size_t i = 0; i < cut.steps.size(); ++i) {
    EXPECT_EQ(cut.steps[i].loss, alone.steps[i].loss) << i;
    EXPECT_EQ(cut.steps[i].skipped, alone.steps[i].skipped) << i;
    EXPECT_EQ(cut.steps[i].scale, alone.steps[i].scale) << i;
  }
}

// The checkpoint keeps every bit of the fp32 weights, however an update stores them.
void expect_resumes_from_checkpoint(MeshCase c, const std::function<void(Trainer&)>& start) {
  c.model.vocab = 256;
  c.steps = 20;
  const Course whole = run_steps(c, start);
  const ScratchFolder folder;
  MeshCase half = c;
  half.steps = 5;  // scales are still too high
  half.mesh[Axis::kPipeline] = 2;
  run_steps(half, start, [&](Trainer& trainer) {
    CheckpointSaver saver(
        {.folder = folder.path("saved"), .model = c.model}, trainer.groups().world,
        trainer.groups().world.subgroup({trainer.groups().world.rank()}, "stage"));
    saver.save({.steps_done = trainer.steps_done()}, trainer.owned_weights(),
               trainer.owned_slots());
    saver.wait();
  });
  for (const int pp : {1, 2}) {
    SCOPED_TRACE(pp);
    c.mesh[Axis::kPipeline] = pp;
    const Course rest = run_steps(
        c, [&](Trainer& trainer) { load_trainer(trainer, c.model, folder.path("saved")); });
    ASSERT_EQ(rest.steps.size(), 15u);
    for (std::size_t i = 0; i < rest.steps.size(); ++i) {
      EXPECT_EQ(rest.steps[i].scale, whole.steps[i + 5].scale) << i;
      EXPECT_EQ(rest.steps[i].skipped, whole.steps[i + 5].skipped) << i;
      EXPECT_EQ(rest.steps[i].loss, whole.steps[i + 5].loss) << i;
    }
    for (const auto& [name, weight] : whole.weights)
      EXPECT_TRUE(at::equal(rest.weights.at(name), weight)) << name;
  }
}

TEST(LossScaling, ResumesFromCheckpointOnDifferentMesh) {
  expect_resumes_from_checkpoint(small_case(at::kHalf), start_too_high);
}

TEST(Precision, Bf16ResumesFromCheckpointOnDifferentMesh) {
  expect_resumes_from_checkpoint(small_case(at::kBFloat16),
                                 [](Trainer& trainer) { trainer.initialise(); });
}

}  // namespace
}  // namespace strata
