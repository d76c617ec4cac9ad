#include "strata/task/recommender/same_features.h"

#include <gtest/gtest.h>

#include <fstream>

#include "strata/base/errors.h"
#include "strata/base/scratch_folder.h"
#include "strata/run/rank_options.h"
#include "strata/run/recipe_file.h"
#include "strata/run/resume_point.h"
#include "strata/run/training_run.h"

namespace strata {
namespace {

class SameFeatures : public testing::Test {
 protected:
  SameFeatures() {
    std::ofstream log(folder_.path("clicks.csv"));
    log << "label,n,u,v\n";
    for (int i = 0; i < 40; ++i) log << i % 2 << "," << i << "," << i % 5 << "," << i % 3 << "\n";
  }

  Recipe recipe(const std::vector<std::string>& overrides = {}) const {
    return parse_recipe(
        "model: {kind: dlrm, bottom: [8], top: [8]}\n"
        "data: {train: " +
            folder_.path("clicks.csv") +
            ", numeric: [n], categorical: [{name: u, width: 8}, {name: v, width: 8}]}\n"
            "embedding: {optimizer: {learning_rate: 0.1}}\n"
            "train: {steps: 2, mini_batch: 8, checkpoint_folder: " +
            folder_.path("saved") + "}\nmesh: {threads: 1}\n",
        "recipe.yaml", overrides);
  }

  void train(const Recipe& recipe, const std::string& resume = "") const {
    strata::train(resolve(recipe), {.resume = resume});
  }

  ScratchFolder folder_;
};

TEST_F(SameFeatures, RefusalNamesEveryDifferingField) {
  train(recipe());
  struct Case {
    std::string set, before, now;
  };
  const std::string u = "{name: u, width: 8}", v = "{name: v, width: 8}";
  const auto features = [](const std::string& list) { return "data.categorical=[" + list + "]"; };
  for (const Case& c : {
           Case{"embedding.optimizer.learning_rate=0.2", "embedding.optimizer.learning_rate=0.1",
                "embedding.optimizer.learning_rate=0.2"},
           Case{"embedding.optimizer.kind=sgd", "embedding.optimizer.kind=adagrad",
                "embedding.optimizer.kind=sgd"},
           Case{"embedding.precision=fp16", "embedding.precision=fp32", "embedding.precision=fp16"},
           Case{"embedding.init.scale=0.5", "embedding.init.scale=", "embedding.init.scale=0.5"},
           Case{"embedding.eviction.steps_to_live=9", "embedding.eviction.steps_to_live=0",
                "embedding.eviction.steps_to_live=9"},
           Case{"train.seed=7", "train.seed=1", "train.seed=7"},
           Case{features(u + ", {name: v, width: 8, embedding: {optimizer: {l1: 1}}}"),
                "data.categorical[1].embedding={}",
                "data.categorical[1].embedding={optimizer: {l1: 1}}"},
           Case{features(u + ", {name: w, column: v, width: 8}"), "data.categorical[1].name=v",
                "data.categorical[1].name=w"},
           Case{features(v + ", " + u), "data.categorical[0].name=u", "data.categorical[0].name=v"},
           Case{features(u), "data.categorical of u, v", "data.categorical of u"},
           Case{features(u + ", {name: v, width: 16}"), "data.categorical[1].width=8",
                "data.categorical[1].width=16"},
           Case{features(u + ", {name: v, width: 8, ids: number}"), "data.categorical[1].ids=hash",
                "data.categorical[1].ids=number"},
           Case{"data.numeric=[{name: n, transform: log}]", "data.numeric[0].transform=z-score",
                "data.numeric[0].transform=log"},
       }) {
    SCOPED_TRACE(c.set);
    const Recipe other = recipe({c.set, "train.steps=4"});
    try {
      resume_point(other, folder_.path("saved"));
      ADD_FAILURE() << "it was not refused";
    } catch (const UserError& error) {
      EXPECT_EQ(error.text().operation, "task.resume");
      EXPECT_TRUE(error.text().expected.starts_with(c.before)) << error.text().expected;
      EXPECT_TRUE(error.text().got.starts_with(c.now)) << error.text().got;
    }
    EXPECT_THROW(train(other, folder_.path("saved")), UserError);  // callers that skip the check
  }
  try {
    resume_point(recipe({"embedding.optimizer.learning_rate=0.2"}), folder_.path("saved"));
    ADD_FAILURE();
  } catch (const UserError& error) {
    EXPECT_EQ(error.text().fix, "set embedding.optimizer.learning_rate=0.1");
  }
}

TEST_F(SameFeatures, AcceptsFieldsThatMayChange) {
  train(recipe());
  train(recipe({"train.optimizer.learning_rate=0.5", "embedding.staleness=3", "embedding.shards=2",
                "embedding.memory=1MiB", "data.shuffle=false", "train.steps=4"}),
        folder_.path("saved"));
}

}  // namespace
}  // namespace strata
