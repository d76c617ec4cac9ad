// Tests that every field of a recipe has its effect: changing a field changes what it controls, and
// not earlier than it should.
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <fstream>
#include <limits>
#include <thread>

#include "strata/base/errors.h"
#include "strata/base/scratch_folder.h"
#include "strata/device/thread_pool.h"
#include "strata/run/rank_options.h"
#include "strata/run/recipe_file.h"
#include "strata/run/training_run.h"

namespace strata {
namespace {

constexpr const char* kRecipe =
    "model: {kind: gpt, layers: 1, width: 32, heads: 2, vocab: 256, context: 16}\n"
    "train: {steps: 5, mini_batch: 4, micro_batch: 2, warmup: 1, clip: 0.1,\n"
    "        optimizer: {kind: adamw, learning_rate: 1e-2, epsilon: 1e-3}}\n"
    "mesh:  {pp: 2, threads: 1}\n";

class RecipeEffects : public testing::Test {
 protected:
  RecipeEffects() {
    std::ofstream text(folder_.path("text"));
    for (int i = 0; i < 200; ++i) text << "in the beginning were " << i * i * i << " words. ";
  }

  Recipe recipe(std::vector<std::string> overrides = {}) const {
    overrides.push_back("data.train=" + folder_.path("text"));
    return parse_recipe(kRecipe, "recipe.yaml", overrides);
  }

  TrainingResult train(const std::vector<std::string>& overrides = {},
                       const TrainingRequest& request = {}) const {
    const Recipe recipe = this->recipe(overrides);
    return strata::train(resolve(recipe), request);
  }

  std::vector<double> losses(const std::vector<std::string>& overrides = {},
                             const TrainingRequest& request = {}) const {
    std::vector<double> losses;
    for (const StepRecord& record : train(overrides, request).records)
      losses.push_back(record.loss);
    return losses;
  }

  ScratchFolder folder_;
};

TEST_F(RecipeEffects, FieldChangesLossFromExpectedStepOn) {
  struct Field {
    std::vector<std::string> changed;
    std::size_t first_step;  // first step with a different loss
    std::vector<std::string> base = {};
  };
  const std::vector<std::string> sgd = {"train.optimizer.kind=sgd"};
  const std::vector<std::string> outer = {"train.outer_steps.every=2"};
  // The first updates: gradients, signs, signs, nothing.
  const std::vector<std::string> zero_one = {"mesh.pp=1",
                                             "mesh.dp=2",
                                             "train.optimizer.kind=zero-one-adam",
                                             "train.optimizer.freeze_step=1",
                                             "train.optimizer.local_doubling=2",
                                             "train.optimizer.local_most=2"};
  const std::vector<std::string> lamb = {"train.optimizer.kind=lamb"};
  // Two updates by LAMB, then signs.
  const std::vector<std::string> one_bit_lamb = {"mesh.pp=1", "mesh.dp=2",
                                                 "train.optimizer.kind=onebit-lamb",
                                                 "train.optimizer.freeze_step=2"};
  const Field fields[] = {
      {{"model.width=64"}, 1},
      {{"model.dropout=0.2"}, 1},
      {{"model.tie=false"}, 1},
      {{"data.shuffle=false"}, 1},
      {{"data.validation_fraction=0.3"}, 1},  // leaves other windows for training
      {{"train.seed=2"}, 1},
      {{"train.seed=2"}, 1, {"data.shuffle=false"}},  // changes first values only
      {{"train.mini_batch=6"}, 1},
      {{"train.label_smoothing=0.1"}, 1},
      {{"train.precision=bf16"}, 1},
      {{"train.clip=0.05"}, 2},
      {{"train.clip=0"}, 2},
      {{"train.clip=0.05"}, 2, sgd},
      {{"train.warmup=3"}, 2},
      {sgd, 2},
      {{"train.optimizer.learning_rate=2e-2"}, 2},
      {{"train.optimizer.epsilon=1e-2"}, 2},
      {{"train.optimizer.weight_decay=0.5"}, 2},
      {{"train.optimizer.weight_decay=0.5"}, 2, sgd},
      {{"train.optimizer.momentum=0.5"}, 3, sgd},  // the first velocity is the gradient
      {{"train.optimizer.freeze_step=2"}, 3, zero_one},
      {{"train.optimizer.refresh_doubling=1", "train.optimizer.freeze_step=3"}, 3, zero_one},
      {{"train.optimizer.local_doubling=1"}, 5, zero_one},
      {{"train.optimizer.local_most=1"}, 5, zero_one},
      {lamb, 2},
      {{"train.optimizer.min_coeff=5"}, 2, lamb},
      {{"train.optimizer.max_coeff=0.02"}, 2, lamb},
      {{"train.optimizer.max_coeff=0.02"}, 2, one_bit_lamb},
      {{"train.optimizer.freeze_step=3"}, 4, one_bit_lamb},
      {{"train.optimizer.coeff_beta=0.1"}, 4, one_bit_lamb},
      {{"train.optimizer.factor_threshold=0.3"}, 4, one_bit_lamb},
      {{"train.optimizer.factor_max=1"}, 4, one_bit_lamb},
      {outer, 3},  // the second step ends a round
      {{"train.outer_steps.every=1"}, 2, outer},
      {{"train.outer_steps.learning_rate=0.5"}, 3, outer},
      {{"train.outer_steps.momentum=0.5"}, 3, outer},
      {{"train.outer_steps.nesterov=false"}, 3, outer},
      {{"train.decay=linear"}, 3},  // the first step has the peak rate in both cases
      {{"train.decay=constant"}, 3},
      {{"train.final_fraction=0.5"}, 3},
      {{"train.steps=7"}, 3},
  };
  for (const Field& field : fields) {
    std::vector<std::string> changed = field.base;
    changed.insert(changed.end(), field.changed.begin(), field.changed.end());
    SCOPED_TRACE(testing::PrintToString(changed));
    const std::vector<double> before = losses(field.base), after = losses(changed);
    std::size_t first = 0;
    while (first < before.size() && before[first] == after[first]) ++first;
    EXPECT_EQ(first + 1, field.first_step);
  }
  // Mathematically only from the second update on; rounding may make it visible earlier.
  for (const char* beta : {"train.optimizer.beta1=0.5", "train.optimizer.beta2=0.5"}) {
    const std::vector<double> before = losses(), after = losses({beta});
    EXPECT_NEAR(after[1], before[1], 1e-5) << beta;
    EXPECT_GT(std::abs(after[4] - before[4]), 1e-4) << beta;
  }
}

TEST_F(RecipeEffects, MeshChangesNothing) {
  const std::vector<double> plain = losses();
  EXPECT_EQ(losses({"mesh.pp=1"}), plain);
  EXPECT_EQ(losses({"mesh.schedule=gpipe"}), plain);
  for (const char* recompute : {"none", "products", "attention", "full"})
    EXPECT_EQ(losses({std::string("memory.recompute=") + recompute}), plain) << recompute;
}

TEST_F(RecipeEffects, RecordsContainLearningRateOfStep) {
  const Recipe recipe = this->recipe({"train.warmup=2"});
  const TrainingResult result = train({"train.warmup=2"});
  ASSERT_EQ(result.records.size(), 5u);
  for (const StepRecord& record : result.records) {
    EXPECT_EQ(record.learning_rate, recipe.learning_rate().at(record.step - 1));
    EXPECT_EQ(record.samples_seen, 4 * record.step);
  }
  EXPECT_EQ(result.records[0].learning_rate, 0.5e-2);
}

// First values come from a checkpoint, so the seed only determines the order of samples.
TEST_F(RecipeEffects, SeedOrdersSamplesIfWeightsComeFromCheckpoint) {
  const std::string saved = folder_.path("saved");
  train({"train.steps=20", "train.checkpoint_folder=" + saved});
  const TrainingRequest from{.from = saved};
  const std::vector<double> one = losses({"data.shuffle=false"}, from);
  EXPECT_EQ(losses({"data.shuffle=false", "train.seed=9"}, from), one);
  EXPECT_LT(one[0], losses({"data.shuffle=false"})[0] - 0.5);
  EXPECT_NE(losses({"train.seed=9"}, from)[0], losses({}, from)[0]);
}

TEST_F(RecipeEffects, LossThatIsNotFiniteEndsRunUnsaved) {
  std::int64_t steps = 0;
  const std::string saved = folder_.path("saved");
  try {
    train({"train.optimizer.learning_rate=1e30", "train.checkpoint_folder=" + saved,
           "train.checkpoint_every=1", "train.steps=50"},
          {.on_step = [&](const StepRecord& record) {
            EXPECT_TRUE(std::isfinite(record.loss));
            steps = record.step;
          }});
    FAIL() << "it went on";
  } catch (const UserError& error) {
    EXPECT_NE(error.text().what.find("no longer finite"), std::string::npos) << error.what();
    EXPECT_EQ(error.text().fix, "lower train.optimizer.learning_rate, which is 1e+30")
        << "the gradient is clipped already";
  }
  EXPECT_GE(steps, 1);
  EXPECT_LT(steps, 10);
}

TEST_F(RecipeEffects, StopEndsRunAfterCurrentStep) {
  std::atomic<bool> stop{false};
  const TrainingResult result =
      train({"train.steps=1000", "train.checkpoint_folder=" + folder_.path("saved")},
            {.on_step = [&](const StepRecord& record) { stop = record.step == 3; }, .stop = &stop});
  EXPECT_TRUE(result.stopped);
  EXPECT_EQ(result.records.back().step, 4);
  EXPECT_NE(result.checkpoint.find("step-00000004"), std::string::npos) << result.checkpoint;
}

TEST_F(RecipeEffects, ValidationRunsAtRequestedSteps) {
  const TrainingResult result = train({"train.validate_every=2"});
  for (const StepRecord& record : result.records)
    EXPECT_EQ(record.validation_loss.has_value(), record.step % 2 == 0) << record.step;
  EXPECT_GT(result.validation_loss, 1);
  EXPECT_EQ(train({"data.validation_fraction=0"}).validation_loss, 0);
  EXPECT_NE(train({"train.validation_samples=3"}).validation_loss, result.validation_loss);
}

TEST_F(RecipeEffects, RanksUseRequestedDeviceOrRefuse) {
  for (const char* there : {"cpu", "auto"}) {
    const Recipe recipe = this->recipe({std::string("mesh.device=") + there});
    World(ranks_options(resolve(recipe))).run([&](Group& group, MemoryAccount&) {
      EXPECT_EQ(group.device(), device_of_rank(Device::parse(there).kind, group.rank()));
    });
  }
  if (cuda_backend().count() > 0) GTEST_SKIP() << "a device of every kind is there";
  const Recipe recipe = this->recipe({"mesh.device=cuda"});
  const auto refusal = [](const auto& start) -> std::string {
    try {
      start();
    } catch (const UserError& error) {
      return error.text().operation;
    }
    return "accepted";
  };
  EXPECT_EQ(refusal([&] { join_world(resolve(recipe)); }), "device.cuda");
  EXPECT_EQ(refusal([&] { plan_run(resolve(recipe)); }), "device.cuda");
  EXPECT_EQ(refusal([&] { plan_run(resolve(recipe), /*probe=*/false); }), "accepted");
}

TEST_F(RecipeEffects, RanksGetThreadsAndBudget) {
  const Recipe recipe =
      this->recipe({"mesh.threads=3", "memory.device=1MiB", "mesh.pp=1", "mesh.dp=2"});
  World(ranks_options(resolve(recipe))).run([](Group&, MemoryAccount&) {
    EXPECT_EQ(thread_pool().threads(), 3);
    EXPECT_NO_THROW(at::empty({1 << 17}));
    EXPECT_THROW(at::empty({1 << 20}), SystemError);
  });
  EXPECT_EQ(ranks_options(resolve(recipe)).mesh[Axis::kData], 2);
  EXPECT_EQ(ranks_options(resolve(recipe)).stall_seconds, 10);
  EXPECT_EQ(ranks_options(resolve(recipe)).stall_fatal_seconds, 60);
}

// Rank 1 reaches the barrier later than the recipe allows, but earlier than the default allows.
TEST_F(RecipeEffects, StallEndsRunAfterTimeOfRecipe) {
  const Recipe recipe = this->recipe({"mesh.stall_fatal_seconds=0.3"});
  EXPECT_DOUBLE_EQ(ranks_options(resolve(recipe)).stall_seconds, 0.05);
  EXPECT_EQ(ranks_options(resolve(recipe)).stall_fatal_seconds, 0.3);
  std::atomic<bool> ended = false;
  EXPECT_THROW(World(ranks_options(resolve(recipe))).run([&](Group& group, MemoryAccount&) {
    for (int i = 0; group.rank() == 1 && i < 800 && !ended; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    try {
      group.barrier();
    } catch (...) {
      ended = true;
      throw;
    }
  }),
               SystemError);
}

}  // namespace
}  // namespace strata
