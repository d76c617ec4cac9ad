// Compares recorded with performed steps of the recipes that come with Strata, bit by bit.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "strata/base/errors.h"
#include "strata/run/recipe_file.h"
#include "strata/run/training_run.h"

namespace strata {
namespace {

// A recipe with sizes for a few steps in a test.
struct RecipeCase {
  const char* name;
  std::vector<std::string> overrides;
  const char* refused = nullptr;  // why it cannot be recorded; null: it can
  bool makes_samples = false;     // generates its samples instead of reading a file
};

const std::vector<std::string> kSmallBatches = {"train.mini_batch=4", "train.micro_batch=2",
                                                "model.context=32"};

class GraphOfRecipe : public testing::TestWithParam<RecipeCase> {
 protected:
  std::vector<StepRecord> records(const std::string& mode) const {
    const std::string root = STRATA_SOURCE_DIR;
    std::vector<std::string> overrides = GetParam().overrides;
    overrides.push_back("train.graph=" + mode);
    overrides.push_back("train.steps=5");
    overrides.push_back("mesh.threads=1");
    overrides.push_back("train.checkpoint_folder=");
    overrides.push_back("train.checkpoint_every=0");
    if (!GetParam().makes_samples) overrides.push_back("data.train=" + root + "/README.md");
    return train(resolve(load_recipe(root + "/recipes/" + GetParam().name + ".yaml", overrides)))
        .records;
  }
};

TEST_P(GraphOfRecipe, HasBitsOfPerformedSteps) {
  const std::vector<StepRecord> performed = records("off");
  ASSERT_EQ(performed.size(), 5u);
  if (GetParam().refused) {
    try {
      records("on");
      FAIL() << "was not refused";
    } catch (const UserError& error) {
      EXPECT_NE(std::string(error.what()).find(GetParam().refused), std::string::npos)
          << error.what();
    }
    return;
  }
  const std::vector<StepRecord> replayed = records("on");
  ASSERT_EQ(replayed.size(), performed.size());
  for (std::size_t i = 0; i < performed.size(); ++i) {
    EXPECT_EQ(replayed[i].loss, performed[i].loss) << "step " << i + 1;
    EXPECT_EQ(replayed[i].gradient_norm, performed[i].gradient_norm) << "step " << i + 1;
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, GraphOfRecipe,
    testing::Values(RecipeCase{"tiny", {}}, RecipeCase{"demo", {"train.mini_batch=8"}},
                    RecipeCase{"gpt-10m", kSmallBatches}, RecipeCase{"bench", kSmallBatches},
                    RecipeCase{"bench-mesh", kSmallBatches},
                    RecipeCase{
                        "mesh", {"mesh.pp=2", "mesh.dp=1", "mesh.zero=0"}, "exchange messages"},
                    RecipeCase{"finetune-offload",
                               {"model.kind=gpt", "model.layers=2", "model.width=32",
                                "model.heads=2", "model.vocab=256", "model.context=16"},
                               "come from elsewhere"},
                    RecipeCase{"clicks",
                               {"train.epochs=0", "data.synthetic.samples=8000",
                                "data.synthetic.validation_samples=64", "train.mini_batch=64"},
                               "come from elsewhere",
                               /*makes_samples=*/true}),
    [](const auto& info) {
      std::string name = info.param.name;
      std::erase(name, '-');
      return name;
    });

}  // namespace
}  // namespace strata
