#include "strata/nn/graph/sequential.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/linspace.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "strata/base/errors.h"
#include "strata/nn/graph/initialise.h"

namespace strata {
namespace {

class Identity : public Layer {
 public:
  explicit Identity(std::vector<WeightSpec> weights = {}) : weights_(std::move(weights)) {}
  std::vector<WeightSpec> weights() const override { return weights_; }
  std::vector<TensorSpec> outputs(std::span<const TensorSpec> inputs) const override {
    return {inputs[0]};
  }
  std::vector<at::Tensor> forward(const ForwardContext&, std::span<const at::Tensor>,
                                  std::span<const at::Tensor> inputs) const override {
    return {inputs[0]};
  }

 private:
  std::vector<WeightSpec> weights_;
};

std::shared_ptr<Identity> layer(std::vector<WeightSpec> weights = {}) {
  return std::make_shared<Identity>(std::move(weights));
}

// A GPU's libraries choose an algorithm by the alignment of their operands, up to 256 bytes.
TEST(Sequential, AlignsWeightsOfAGpuTo256BytesInEveryPrecision) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
    Sequential model({"tokens"}, {}, dtype);
    model.add("layer",
              layer({{.name = "a", .shape = {3, 5}, .decay = true},
                     {.name = "b", .shape = {129}},
                     {.name = "c", .shape = {1}}}),
              {"tokens"});
    EXPECT_LT(model.layout(0).own_numel, 250);
    model.align_weights(kCudaWeightAlignmentBytes);
    const LayerLayout& layout = model.layout(0);
    const auto element = static_cast<std::int64_t>(c10::elementSize(dtype));
    for (const WeightPlacement& place : layout.placements)
      EXPECT_EQ(place.offset * element % 256, 0);
    EXPECT_EQ(layout.own_numel, dtype == at::kFloat ? 64 + 192 + 64 : 128 + 256 + 128);
    EXPECT_EQ(layout.specs[1].name, "b");
    EXPECT_EQ(layout.placements[1].numel, 129);
  }
}

TEST(Sequential, WiresSkipsBetweenAnyTwoLayers) {
  Sequential model({"tokens"});
  model.add("a", layer(), {"tokens"}, {"early"});
  model.add("b", layer(), {"early"}, {"x"});
  model.add("c", layer());
  model.add("d", layer(), {"x", "early"}, {"x"});
  EXPECT_EQ(model.inputs(0)[0].batch_input, 0);
  EXPECT_EQ(model.dataflow().values[0].consumers, (std::vector<int>{1, 3}));
  EXPECT_EQ(model.dataflow().values[1].consumers, std::vector<int>{2});
  EXPECT_EQ(model.inputs(3)[0].value, 2);
  EXPECT_EQ(model.inputs(3)[1].value, 0);
}

TEST(Sequential, GivesATiedWeightToItsFirstLayer) {
  Sequential model({"tokens"});
  const WeightSpec tied{.name = "w", .shape = {4, 8}, .tie = "shared"};
  model.add("a", layer({tied}), {"tokens"});
  model.add("b", layer());
  model.add("c", layer({tied, {.name = "bias", .shape = {3}}}));
  ASSERT_EQ(model.dataflow().ties.size(), 1u);
  EXPECT_EQ(model.dataflow().ties[0].owner, 0);
  EXPECT_EQ(model.dataflow().ties[0].users, std::vector<int>{2});
  EXPECT_EQ(model.num_weights(), 32 + 3);
  EXPECT_TRUE(model.layout(2).placements[0].borrowed);
}

TEST(Sequential, RefusesLayersThatDoNotFit) {
  Sequential model({"tokens"});
  const WeightSpec tied{.name = "w", .shape = {4, 8}, .tie = "shared"};
  model.add("a", layer({tied}), {"tokens"});
  EXPECT_THROW(model.add("a", layer()), UserError);         // name taken
  EXPECT_THROW(model.add("b", layer(), {"y"}), UserError);  // unknown input
  WeightSpec other = tied;
  other.shape = {5, 8};
  EXPECT_THROW(model.add("d", layer({other})), UserError);  // tied, another shape
}

TEST(Sequential, RefusesAnInputNamedTwice) {
  Sequential model({"tokens"});
  model.add("a", layer(), {"tokens"});
  EXPECT_THROW(model.add("c", layer(), {"x", "x"}), UserError);
}

TEST(Sequential, ReturnsGradientOfInputWithOneReader) {
  Sequential model({"numbers", "rows", "labels"});
  model.want_gradient("rows");
  model.add("a", layer(), {"numbers"});
  model.add("b", layer(), {"x", "rows", "labels"});
  EXPECT_FALSE(model.wants_gradient(0));
  EXPECT_TRUE(model.wants_gradient(model.batch_input("rows")));
  EXPECT_EQ(model.differentiable_inputs(0), std::vector<bool>{false});
  EXPECT_EQ(model.differentiable_inputs(1), (std::vector<bool>{true, true, false}));
  EXPECT_THROW(model.add("c", layer(), {"rows"}), UserError);  // a second reader
  EXPECT_NO_THROW(model.add("d", layer(), {"x", "numbers"}));
  EXPECT_THROW(model.want_gradient("pixels"), UserError);
}

TEST(Sequential, CountsNoRunningStatistics) {
  Sequential model({"x"});
  model.add("norm", layer({{.name = "gain", .shape = {4}},
                           {.name = "mean", .shape = {4}, .statistic = Statistic::kMean}}));
  EXPECT_EQ(model.num_weights(), 4);
}

TEST(Initialise, DrawsByNameAndSeedAlone) {
  const WeightSpec spec{.name = "w", .shape = {64, 64}, .init = {Init::Kind::kNormal, 0.02}};
  const at::Tensor a = at::empty({64, 64}), b = at::empty({64, 64}), c = at::empty({64, 64});
  initialise(a, spec, "block0", 1);
  initialise(b, spec, "block0", 1);
  initialise(c, spec, "block1", 1);
  EXPECT_TRUE(at::equal(a, b));
  EXPECT_FALSE(at::equal(a, c));
  EXPECT_NEAR(a.std().item<double>(), 0.02, 0.001);
  EXPECT_NEAR(a.mean().item<double>(), 0.0, 0.001);
}

TEST(Initialise, DrawsUniformNumbersOfBothSignsUpToTheScale) {
  const WeightSpec spec{.name = "w", .shape = {128, 64}, .init = {Init::Kind::kUniform, 0.125}};
  const at::Tensor a = at::empty({128, 64}), b = at::empty({128, 64});
  initialise(a, spec, "hidden", 1);
  initialise(b, spec, "hidden", 2);
  EXPECT_FALSE(at::equal(a, b));
  // Sorted, they are as even as 8,192 draws are: bounds the largest gap (Kolmogorov-Smirnov).
  const at::Tensor sorted = std::get<0>(a.flatten().sort());
  const at::Tensor even = at::linspace(-0.125, 0.125, a.numel());
  EXPECT_LT((sorted - even).abs().max().item<double>(), 0.25 * 1.63 / std::sqrt(8192.0));
  EXPECT_LE(a.abs().max().item<double>(), 0.125);
}

TEST(Initialise, DrawsPieceLikePartOfWhole) {
  const WeightSpec spec{
      .name = "w", .shape = {24, 50}, .init = {Init::Kind::kNormal, 0.02}, .split = {.axis = 1}};
  for (const int ranks : {1, 2}) {
    const std::int64_t numel = 24 * 50 / ranks;
    const at::Tensor whole = at::empty({numel}), pieces = at::empty({numel});
    initialise(whole, spec, "block0", 1, ranks - 1, ranks);
    for (std::int64_t begin = 0; begin < numel; begin += 77)
      initialise(pieces.narrow(0, begin, std::min<std::int64_t>(77, numel - begin)), spec, "block0",
                 1, ranks - 1, ranks, begin);
    EXPECT_TRUE(at::equal(whole, pieces)) << ranks;
  }
}

TEST(Initialise, GivesAllUsesOfATieTheSameValues) {
  const WeightSpec spec{
      .name = "w", .shape = {64}, .init = {Init::Kind::kNormal, 1}, .tie = "shared"};
  const at::Tensor a = at::empty({64}), b = at::empty({64});
  initialise(a, spec, "embed", 1);
  initialise(b, spec, "head", 1);
  EXPECT_TRUE(at::equal(a, b));
}

}  // namespace
}  // namespace strata
