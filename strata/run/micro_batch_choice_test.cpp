#include "strata/run/micro_batch_choice.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "strata/base/errors.h"
#include "strata/base/scratch_folder.h"
#include "strata/run/recipe_file.h"
#include "strata/run/training_run.h"
#include "strata/run/training_start.h"

namespace strata {
namespace {

TEST(MicroBatchChoice, TriesPowersOfTwoAndAllSamples) {
  EXPECT_EQ(possible_micro_batches(1), (std::vector<std::int64_t>{1}));
  EXPECT_EQ(possible_micro_batches(8), (std::vector<std::int64_t>{1, 2, 4, 8}));
  EXPECT_EQ(possible_micro_batches(11), (std::vector<std::int64_t>{1, 2, 4, 8, 11}));
  EXPECT_EQ(possible_micro_batches(1000),
            (std::vector<std::int64_t>{4, 8, 16, 32, 64, 128, 256, 512, 1000}));
}

std::int64_t chosen(const std::map<std::int64_t, double>& seconds) {
  return choose_micro_batch(seconds.rbegin()->first,
                            [&](std::int64_t samples) {
                              return MicroBatchTrial{.samples = samples,
                                                     .fits = seconds.at(samples) > 0,
                                                     .step_seconds = seconds.at(samples)};
                            })
      .samples();
}

TEST(MicroBatchChoice, IsTheFastestThatFits) {
  EXPECT_EQ(chosen({{1, 4.0}, {2, 3.0}, {4, 2.0}, {8, 2.5}}), 4);
  EXPECT_EQ(chosen({{1, 4.0}, {2, 3.0}, {4, 0.0}, {8, 0.0}}), 2);  // 0: does not fit
  EXPECT_EQ(chosen({{1, 2.01}, {2, 2.005}, {4, 2.0}, {8, 2.0}}), 1);
}

TEST(MicroBatchChoice, NamesSizesThatCannotBePlannedAndThrowsIfNoneCan) {
  const auto refuse = [](std::int64_t samples) -> MicroBatchTrial {
    throw UserError({.operation = "plan.memory",
                     .where = std::to_string(samples),
                     .what = "the plan needs more memory"});
  };
  try {
    choose_micro_batch(4, refuse);
    FAIL() << "was not refused";
  } catch (const UserError& error) {
    EXPECT_EQ(error.text().where, "1");
  }
  // That a size makes too many micro-batches does not explain why no other one fits.
  try {
    choose_micro_batch(4, [&](std::int64_t samples) {
      if (samples == 1)
        throw UserError({.operation = "run.recipe", .what = "too many micro-batches"});
      return refuse(samples);
    });
    FAIL() << "was not refused";
  } catch (const UserError& error) {
    EXPECT_EQ(error.text().where, "2");
  }
  // Sizes that do not fit without an error.
  EXPECT_THROW(
      choose_micro_batch(4, [](std::int64_t) { return MicroBatchTrial{.reason = "needs 3 of 2"}; }),
      UserError);
  const MicroBatchChoice choice = choose_micro_batch(8, [&](std::int64_t samples) {
    // Too little free memory to measure the layers.
    if (samples == 8)
      throw SystemError({.operation = "pipeline.probe", .what = "more than is free"});
    if (samples > 2) return refuse(samples);
    return MicroBatchTrial{
        .samples = samples, .fits = true, .step_seconds = 3.0 / samples, .peak_bytes = 1 << 20};
  });
  EXPECT_EQ(micro_batch_text(choice),
            "micro-batch   step      peak\n"
            "          1    3 s  1.00 MiB\n"
            "          2  1.5 s  1.00 MiB  chosen\n"
            "          4                   the plan needs more memory\n"
            "          8                   more than is free\n");
}

class OpenMicroBatch : public testing::Test {
 protected:
  OpenMicroBatch() { std::ofstream(folder_.path("text")) << std::string(4000, 'a'); }

  Recipe recipe(std::vector<std::string> overrides = {}, const std::string& resume = "") const {
    overrides.insert(overrides.begin(), "data.train=" + folder_.path("text"));
    return parse_recipe(
        "model: {kind: gpt, layers: 2, width: 32, heads: 2, vocab: 256, context: 16, dropout: "
        "0.1}\n"
        "train: {steps: 2, mini_batch: 8, micro_batch: 0, optimizer: {kind: adamw}}\n"
        "mesh:  {pp: 2, threads: 1}\n",
        "recipe.yaml", overrides, training_defaults(resume, ""));
  }

  ScratchFolder folder_;
};

TEST_F(OpenMicroBatch, IsDecidedByPlans) {
  const ResolvedRun run = resolve(recipe());
  ASSERT_TRUE(run.micro_batch);
  EXPECT_EQ(run.micro_batch->trials.size(), 4u);
  EXPECT_EQ(run.recipe.train.micro_batch, run.micro_batch->samples());
  for (const MicroBatchTrial& trial : run.micro_batch->trials) {
    EXPECT_TRUE(trial.fits);
    EXPECT_GT(trial.step_seconds, 0);
  }
  // The text is that of a recipe with this number.
  const std::string number = "train.micro_batch=" + std::to_string(run.recipe.train.micro_batch);
  EXPECT_EQ(run.recipe.text, recipe({number}).text);
  EXPECT_EQ(run.fingerprint, recipe({number}).text);
  EXPECT_FALSE(resolve(recipe({number})).micro_batch);
}

TEST_F(OpenMicroBatch, IsOneThatFits) {
  const auto peak = [&](int samples) {
    return resolve(recipe(), {.measure = false}).micro_batch->trials[samples].peak_bytes;
  };
  const std::int64_t small = peak(0), large = peak(3);
  ASSERT_GT(large, small);
  const ResolvedRun run = resolve(recipe({"memory.device=" + std::to_string((small + large) / 2),
                                          "memory.weights=device", "memory.states=device"}),
                                  {.measure = false});
  EXPECT_TRUE(run.micro_batch->trials.front().fits);
  EXPECT_FALSE(run.micro_batch->trials.back().fits);
  EXPECT_FALSE(run.micro_batch->trials.back().reason.empty());
  EXPECT_LT(run.recipe.train.micro_batch, 8);
}

// Without a budget the memory of the machine is the limit: 256 samples of 16,384 tokens save 280
// GiB.
TEST_F(OpenMicroBatch, IsOneThatFitsTheMachineWithoutABudget) {
  const ResolvedRun run = resolve(
      recipe({"model.context=16384", "model.width=1024", "train.mini_batch=256", "mesh.pp=1"}),
      {.measure = false});
  EXPECT_TRUE(run.micro_batch->trials.front().fits);
  EXPECT_FALSE(run.micro_batch->trials.back().fits);
  EXPECT_EQ(run.micro_batch->trials.back().reason.rfind("needs ", 0), 0u);
  EXPECT_LT(run.recipe.train.micro_batch, 256);
}

TEST_F(OpenMicroBatch, IsSearchedWithTheMesh) {
  const ResolvedRun run = resolve(recipe({"mesh.pp=1", "mesh.auto=true", "mesh.ranks=2"}));
  ASSERT_TRUE(run.micro_batch && run.search);
  EXPECT_FALSE(run.recipe.mesh.automatic);
  EXPECT_EQ(run.recipe.mesh.axes.size(), 2);
}

// Another size would change bits: the size of the first run stays.
TEST_F(OpenMicroBatch, StaysWhenTheRunResumes) {
  const std::string saved = "train.checkpoint_folder=" + folder_.path("saved");
  const ResolvedRun first = resolve(recipe({saved, "memory.device=200MiB"}));
  const std::int64_t samples = first.recipe.train.micro_batch;
  train(first);
  for (const int size : {1, 2, 4, 8}) {
    // What a recipe names counts.
    EXPECT_EQ(recipe({"train.micro_batch=" + std::to_string(size)}, folder_.path("saved"))
                  .train.micro_batch,
              size);
  }
  const Recipe resumed = recipe({saved, "train.steps=4"}, folder_.path("saved"));
  EXPECT_EQ(resumed.train.micro_batch, samples);
  EXPECT_FALSE(resolve(resumed).micro_batch);
  EXPECT_EQ(resumed_micro_batch(folder_.path("saved")), samples);
  EXPECT_EQ(resumed_micro_batch(""), 0);
}

TEST_F(OpenMicroBatch, IsRefusedInSeveralProcesses) {
  const std::pair<const char*, const char*> variables[] = {
      {"WORLD_SIZE", "2"}, {"RANK", "0"}, {"MASTER_ADDR", "127.0.0.1"}};
  for (const auto& [name, value] : variables) ::setenv(name, value, 1);
  try {
    resolve(recipe());
    ADD_FAILURE() << "was not refused";
  } catch (const UserError& error) {
    EXPECT_EQ(error.text().where, "train.micro_batch");
    EXPECT_EQ(error.text().got, "0, in 2 processes");
  }
  for (const auto& [name, value] : variables) ::unsetenv(name);
}

TEST_F(OpenMicroBatch, HasNoNegativeSizeNorMoreThanTheMiniBatch) {
  EXPECT_THROW(recipe({"train.micro_batch=-1"}), UserError);
  EXPECT_THROW(recipe({"train.micro_batch=9"}), UserError);
}

}  // namespace
}  // namespace strata
