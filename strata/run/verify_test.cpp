// Tests that verification detects and names a wrong gradient of any weight of any layer.
#include "strata/run/verify.h"

#include <gtest/gtest.h>

#include <fstream>

#include "strata/base/scratch_folder.h"
#include "strata/run/recipe_file.h"
#include "strata/train/wrapped_layer_test.h"

namespace strata {
namespace {

class Verify : public testing::Test {
 protected:
  Verify() {
    std::ofstream text(folder_.path("text"));
    for (int i = 0; i < 60; ++i) text << "and the word was number " << i * i << ". ";
  }

  Recipe recipe(const std::string& model, const std::string& mesh) const {
    return parse_recipe("model: {layers: 1, width: 32, heads: 4, vocab: 256, context: 16, " +
                            model + "}\ndata: {train: " + folder_.path("text") +
                            "}\ntrain: {mini_batch: 4, micro_batch: 2}\nmesh: {threads: 1, " +
                            mesh + "}\n",
                        "recipe.yaml", {});
  }

  // The result of verify() if one element of one gradient is wrong on the mesh.
  static Verification with_wrong_gradient(const Recipe& recipe, const PlannedRun& run, int layer,
                                          std::size_t weight) {
    PlannedRun wrong = run;
    wrong.model =
        with_wrapped_layer(run.model, layer, [weight](std::span<const at::Tensor> weights) {
          const at::NoGradGuard no_grad;
          weights[weight].mutable_grad().view(-1)[3].add_(0.5);
        });
    return verify(recipe, wrong);
  }

  // Tests every weight of every layer.
  static int expect_every_weight_named(const Recipe& recipe) {
    const PlannedRun run = plan_run(resolve(recipe), /*probe=*/false);
    int weights = 0;
    for (int layer = 0; layer < run.model.num_layers(); ++layer) {
      const LayerLayout& layout = run.model.layout(layer);
      for (std::size_t i = 0; i < layout.specs.size(); ++i, ++weights) {
        const std::string name = run.model.name(layer) + "." + layout.specs[i].name;
        SCOPED_TRACE(name);
        const Verification wrong = with_wrong_gradient(recipe, run, layer, i);
        EXPECT_FALSE(wrong.holds());
        const LayerComparison* first = wrong.first_difference();
        if (!first) {
          ADD_FAILURE() << "no layer differs";
          continue;
        }
        EXPECT_GE(first->differing, 1);
        EXPECT_GT(first->largest_difference, 0.1);
        if (layout.placements[i].borrowed) {  // a tied weight has one gradient, at its owner
          EXPECT_EQ(first->layer, "embed");
        } else {
          EXPECT_EQ(first->layer, run.model.name(layer));
          EXPECT_EQ(wrong.bits_expected ? first->first_weight : first->worst_weight, name);
        }
      }
    }
    return weights;
  }

  ScratchFolder folder_;
};

TEST_F(Verify, HoldsForEveryElementOfPipeline) {
  const Recipe recipe = this->recipe("kind: gpt", "pp: 2");
  const PlannedRun run = plan_run(resolve(recipe), /*probe=*/false);
  const Verification result = verify(recipe, run);
  EXPECT_TRUE(result.holds());
  EXPECT_TRUE(result.bits_expected);
  EXPECT_EQ(result.mesh_loss, result.reference_loss);
  EXPECT_GT(result.mesh_loss, 4);
  ASSERT_EQ(result.layers.size(), 3u);
  std::int64_t elements = 0;
  for (const LayerComparison& layer : result.layers) {
    EXPECT_EQ(layer.differing, 0) << layer.layer;
    EXPECT_GT(layer.largest_gradient, 0) << layer.layer;
    elements += layer.elements;
  }
  EXPECT_EQ(elements, run.model.num_weights());
}

TEST_F(Verify, NamesAnyWeightOfGptWithDifferentGradient) {
  EXPECT_EQ(expect_every_weight_named(recipe("kind: gpt, tie: false", "pp: 2")), 2 + 12 + 3);
  EXPECT_EQ(expect_every_weight_named(recipe("kind: gpt", "pp: 3")), 2 + 12 + 3);
}

TEST_F(Verify, NamesAnyWeightOfLlamaWithDifferentGradient) {
  const std::string llama = "kind: llama, kv_heads: 2, tie: false, ";
  EXPECT_EQ(expect_every_weight_named(recipe(llama + "qkv_bias: true", "pp: 2")), 1 + 7 + 2);
  EXPECT_EQ(expect_every_weight_named(recipe(llama + "qk_norm: true", "pp: 3")), 1 + 8 + 2);
}

TEST_F(Verify, AllowsOnlyRoundingOfReplicasAndSlices) {
  const Recipe recipe = this->recipe("kind: gpt, tie: false", "dp: 2, tp: 2");
  const Verification honest = verify(recipe, plan_run(resolve(recipe), /*probe=*/false));
  EXPECT_FALSE(honest.bits_expected);
  EXPECT_TRUE(honest.holds());
  expect_every_weight_named(recipe);
}

TEST_F(Verify, DetectsDifferentLoss) {
  Verification result{.mesh_loss = 5, .reference_loss = 5};
  EXPECT_TRUE(result.holds());
  result.mesh_loss = 5 + 1e-15;
  EXPECT_FALSE(result.holds());
  result.bits_expected = false;
  EXPECT_TRUE(result.holds());
  result.mesh_loss = 5.001;
  EXPECT_FALSE(result.holds());
}

}  // namespace
}  // namespace strata
