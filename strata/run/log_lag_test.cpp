// Tests train.log_lag: the loss of a step is read while the next step runs, the same lines come one
// step later, and no step is saved before its loss is known.
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <fstream>

#include "strata/base/errors.h"
#include "strata/base/scratch_folder.h"
#include "strata/run/rank_options.h"
#include "strata/run/recipe_file.h"
#include "strata/run/training_run.h"

namespace strata {
namespace {

constexpr const char* kRecipe =
    "model: {kind: gpt, layers: 1, width: 32, heads: 2, vocab: 256, context: 16}\n"
    "data:  {validation_fraction: 0.2}\n"
    "train: {steps: 7, mini_batch: 4, micro_batch: 2, warmup: 1, clip: 0.1, validation_samples: "
    "4,\n"
    "        optimizer: {kind: adamw, learning_rate: 1e-2, epsilon: 1e-3}}\n"
    "mesh:  {pp: 2, threads: 1}\n";

class LogLag : public testing::Test {
 protected:
  LogLag() {
    std::ofstream text(folder_.path("text"));
    for (int i = 0; i < 200; ++i) text << "in the beginning were " << i * i * i << " words. ";
  }

  TrainingResult train(std::vector<std::string> overrides, const TrainingRequest& request = {}) {
    overrides.push_back("data.train=" + folder_.path("text"));
    const Recipe recipe = parse_recipe(kRecipe, "recipe.yaml", overrides);
    return strata::train(resolve(recipe), request);
  }

  // Without the fields that depend on the clock or the allocator.
  std::vector<std::string> lines(const std::vector<std::string>& overrides,
                                 const std::string& resume = "") {
    std::vector<std::string> lines;
    TrainingRequest request{.resume = resume};
    request.on_step = [&](StepRecord record) {
      record.step_seconds = record.units_per_second = record.bubble = 0;
      record.peak_bytes.clear();
      lines.push_back(to_metrics_line(record));
    };
    const TrainingResult result = train(overrides, request);
    EXPECT_EQ(result.records.size(), lines.size());
    return lines;
  }

  ScratchFolder folder_;
};

TEST_F(LogLag, WritesSameLines) {
  for (const std::vector<std::string>& more : std::vector<std::vector<std::string>>{
           {}, {"train.validate_every=3"}, {"train.precision=fp16"}, {"train.graph=on"}}) {
    std::vector<std::string> lag = more;
    lag.push_back("train.log_lag=1");
    const std::vector<std::string> expected = lines(more);
    EXPECT_EQ(expected.size(), 7u);
    EXPECT_EQ(lines(lag), expected);
  }
}

TEST_F(LogLag, StopsAfterRequestedStepAndReportsIt) {
  for (const int lag : {0, 1}) {
    std::atomic<bool> stop = false;
    TrainingRequest request{.stop = &stop};
    request.on_step = [&](const StepRecord& record) { stop = stop || record.step == 3; };
    const TrainingResult result = train({"train.log_lag=" + std::to_string(lag)}, request);
    EXPECT_TRUE(result.stopped);
    EXPECT_EQ(result.records.size(), 4u);
    EXPECT_EQ(result.records.back().step, 4);
  }
}

TEST_F(LogLag, ResumedRunEqualsUninterruptedRun) {
  const std::string saved = folder_.path("saved");
  const std::vector<std::string> all = lines({});
  const std::vector<std::string> saving = {"train.log_lag=1", "train.checkpoint_folder=" + saved,
                                           "train.checkpoint_every=3", "train.keep_checkpoints=0"};
  EXPECT_EQ(lines(saving), all);
  const std::string at_three = saved + "/step-00000003";
  ASSERT_TRUE(std::filesystem::exists(at_three));
  const std::vector<std::string> rest = lines({"train.log_lag=1"}, at_three);
  EXPECT_EQ(rest, std::vector<std::string>(all.begin() + 3, all.end()));
}

// The loss of the step itself is finite, but its update makes the weights too large.
TEST_F(LogLag, RefusesValidationLossThatIsNotFinite) {
  for (const std::vector<std::string>& when : std::vector<std::vector<std::string>>{
           {"train.steps=1"}, {"train.steps=2", "train.validate_every=1"}}) {
    std::vector<std::string> overrides = {"train.clip=0", "train.warmup=0",
                                          "train.optimizer.kind=sgd",
                                          "train.optimizer.learning_rate=1e30"};
    overrides.insert(overrides.end(), when.begin(), when.end());
    try {
      train(overrides);
      ADD_FAILURE() << "it was not refused: " << when[0];
    } catch (const UserError& error) {
      EXPECT_EQ(error.text().operation, "run.validate");
      EXPECT_NE(error.text().where.find("step 1"), std::string::npos) << error.what();
      EXPECT_EQ(error.text().fix,
                "lower train.optimizer.learning_rate, which is 1e+30, or set train.clip=1");
    }
  }
}

TEST_F(LogLag, NamesDivergedStepAndSavesNoLaterOne) {
  for (const int every : {1, 3}) {
    std::string diverged;
    for (const int lag : {0, 1}) {
      const std::string saved =
          folder_.path("every-" + std::to_string(every) + "-lag-" + std::to_string(lag));
      std::vector<std::int64_t> reported;
      TrainingRequest request;
      request.on_step = [&](const StepRecord& record) { reported.push_back(record.step); };
      try {
        train(
            {"train.log_lag=" + std::to_string(lag), "train.clip=0", "train.warmup=0",
             "train.optimizer.kind=sgd", "train.optimizer.learning_rate=1e30",
             "train.checkpoint_folder=" + saved, "train.checkpoint_every=" + std::to_string(every)},
            request);
        FAIL() << "did not diverge";
      } catch (const UserError& error) {
        EXPECT_NE(error.text().what.find("no longer finite"), std::string::npos) << error.what();
        EXPECT_EQ(error.text().fix,
                  "lower train.optimizer.learning_rate, which is 1e+30, or set train.clip=1");
        // All ranks detect it; the error names the first one that reports it.
        const std::string& where = error.text().where;
        const std::string step = where.substr(where.rfind("step "));
        if (lag == 0) diverged = step;
        EXPECT_EQ(step, diverged);
      }
      ASSERT_FALSE(reported.empty());
      EXPECT_EQ(diverged, "step " + std::to_string(reported.back() + 1));
      for (const auto& entry : std::filesystem::directory_iterator(saved)) {
        const std::string name = entry.path().filename();
        if (name.starts_with("step-"))
          EXPECT_LE(std::stoll(name.substr(5)), reported.back()) << name;
      }
    }
  }
}

}  // namespace
}  // namespace strata
