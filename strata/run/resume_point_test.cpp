#include "strata/run/resume_point.h"

#include <gtest/gtest.h>

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
    "train: {steps: 2, mini_batch: 4, micro_batch: 2, optimizer: {kind: adamw}}\n"
    "mesh:  {pp: 2, threads: 1}\n";

class ResumePoints : public testing::Test {
 protected:
  ResumePoints() {
    for (const char* name : {"text", "other"})
      std::ofstream(folder_.path(name)) << std::string(2000, 'a');
  }

  Recipe recipe(std::vector<std::string> overrides = {}) const {
    overrides.insert(overrides.begin(),
                     {"data.train=" + folder_.path("text"), "train.checkpoint_folder=" + saved()});
    return parse_recipe(kRecipe, "recipe.yaml", overrides);
  }

  std::string saved() const { return folder_.path("saved"); }

  void train(const std::vector<std::string>& overrides = {}) const {
    const Recipe recipe = this->recipe(overrides);
    strata::train(resolve(recipe));
  }

  ScratchFolder folder_;
};

TEST_F(ResumePoints, AreEmptyForFirstValues) { EXPECT_EQ(text_of(resume_point(recipe(), "")), ""); }

TEST_F(ResumePoints, ListChangedFields) {
  train();
  const ResumePoint same = resume_point(recipe(), saved());
  EXPECT_EQ(same.steps_done, 2);
  EXPECT_EQ(text_of(same), "resumed  step 2 of " + saved() + "/step-00000002\n");

  const std::string text = folder_.path("text"), other = folder_.path("other");
  const ResumePoint changed =
      resume_point(recipe({"data.train=" + other, "train.steps=5", "mesh.pp=1"}), saved());
  EXPECT_EQ(text_of(changed), "resumed  step 2 of " + saved() +
                                  "/step-00000002\n"
                                  "changed  data.train " +
                                  text + " -> " + other +
                                  "\n"
                                  "changed  train.steps 2 -> 5\n"
                                  "changed  mesh.pp 2 -> 1\n");
}

TEST_F(ResumePoints, RefuseOptimizerWithoutItsStates) {
  train();
  for (const auto& [field, before, now] :
       {std::tuple("train.optimizer.kind", "adamw", "sgd"),
        std::tuple("train.optimizer.kind", "adamw", "adagrad")}) {
    try {
      resume_point(recipe({std::string(field) + "=" + now}), saved());
      ADD_FAILURE() << now << " was not refused";
    } catch (const UserError& error) {
      EXPECT_EQ(error.text().expected, std::string(field) + "=" + before);
      EXPECT_EQ(error.text().got, std::string(field) + "=" + now);
      EXPECT_NE(error.text().fix.find("--from " + saved()), std::string::npos);
    }
  }
  // Names the one of several changes that is the cause.
  train({"train.optimizer.kind=sgd", "train.optimizer.momentum=0",
         "train.checkpoint_folder=" + folder_.path("sgd")});
  try {
    resume_point(recipe({"train.optimizer.kind=sgd", "train.optimizer.learning_rate=0.5",
                         "train.optimizer.momentum=0.5"}),
                 folder_.path("sgd"));
    ADD_FAILURE() << "a momentum was not refused";
  } catch (const UserError& error) {
    EXPECT_EQ(error.text().expected, "train.optimizer.momentum=0");
  }
  // The new optimizer needs no state, or no other state.
  EXPECT_NO_THROW(
      resume_point(recipe({"train.optimizer.kind=sgd", "train.optimizer.momentum=0"}), saved()));
  EXPECT_NO_THROW(resume_point(recipe({"train.optimizer.beta1=0.5"}), saved()));
}

// Called before the resuming command is printed: saved files may be gone.
TEST_F(ResumePoints, AreSystemErrorsIfRemoved) {
  const std::vector<std::string> disk{"memory.disk.path=" + folder_.path("disk"),
                                      "memory.states=disk"};
  train(disk);
  for (const std::string& place : {saved(), folder_.path("disk")}) {
    EXPECT_NO_THROW(require_resume_point(recipe(disk), place));
    std::filesystem::remove_all(place);
    EXPECT_THROW(require_resume_point(recipe(disk), place), SystemError) << place;
  }
}

TEST_F(ResumePoints, OnDiskFollowStoredPlan) {
  const std::vector<std::string> disk{"memory.disk.path=" + folder_.path("disk"),
                                      "memory.states=disk"};
  train(disk);
  const ResumePoint point = resume_point(recipe(disk), folder_.path("disk"));
  EXPECT_EQ(point.folder, folder_.path("disk"));
  EXPECT_EQ(point.steps_done, 2);
  EXPECT_FALSE(point.decisions.empty());
  EXPECT_TRUE(point.changes.empty());
}

}  // namespace
}  // namespace strata
