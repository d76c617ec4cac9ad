// Tests recommenders alone: gradients against finite differences, scores against logits, stated
// bytes against allocated ones, and refusals.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "strata/base/errors.h"
#include "strata/base/ignored_target.h"
#include "strata/models/recommender.h"
#include "strata/nn/graph/initialise.h"
#include "strata/nn/graph/measured_bytes.h"

namespace strata {
namespace {

// share of the layer's bytes: the allocator's blocks, statistics
constexpr double kTolerance = 0.03;

struct Kind {
  const char* name;
  RecommenderOptions options;
  RecommenderInputs inputs = {.numeric = 16, .row_widths = {32, 32, 64, 32}};
};

class Recommenders : public testing::TestWithParam<Kind> {};

TEST_P(Recommenders, StatedBytesEqualMeasuredBytes) {
  const auto& [name, options, inputs] = GetParam();
  const Sequential model = make_recommender(options, inputs);
  const std::vector<TensorSpec> batch = recommender_batch(inputs, 256);
  const std::vector<TensorSpec> values = model.value_specs(batch);
  for (int layer = 0; layer < model.num_layers(); ++layer) {
    const std::vector<TensorSpec> specs = model.input_specs(layer, batch, values);
    SCOPED_TRACE(model.name(layer));
    const LayerBytes stated = model.layer(layer).bytes(specs, Recompute::kCheap);
    const LayerBytes measured = measured_bytes(model.layer(layer), specs, Recompute::kCheap);
    const double small =
        kTolerance * static_cast<double>(measured.saved + measured.backward_transient) + 4096;
    EXPECT_NEAR(stated.saved, measured.saved, small);
    EXPECT_NEAR(stated.forward_transient, measured.forward_transient, small);
    EXPECT_NEAR(stated.backward_transient, measured.backward_transient, small);
  }
}

using Weights = std::vector<std::vector<at::Tensor>>;

// Leaves, as a store makes them, by name, so that another output of the model can use them.
Weights first_weights(const Sequential& model) {
  Weights weights;
  for (int layer = 0; layer < model.num_layers(); ++layer) {
    weights.emplace_back();
    for (const WeightSpec& spec : model.layout(layer).specs) {
      at::Tensor weight = at::zeros(spec.shape);
      initialise(weight, spec, model.name(layer), /*seed=*/2);
      weights.back().push_back(weight.requires_grad_(true));
      weights.back().back().mutable_grad() = first_gradient(spec, at::kFloat);
    }
  }
  return weights;
}

// The last layer's output.
at::Tensor output_of(const Sequential& model, const Weights& weights,
                     std::span<const at::Tensor> batch, ForwardContext context) {
  std::vector<at::Tensor> values(model.dataflow().values.size());
  for (int layer = 0; layer < model.num_layers(); ++layer) {
    std::vector<at::Tensor> inputs;
    for (const InputRef& ref : model.inputs(layer))
      inputs.push_back(ref.value >= 0 ? values[ref.value] : batch[ref.batch_input]);
    context.layer = layer;
    const std::vector<at::Tensor> outputs =
        model.layer(layer).forward(context, weights[layer], inputs);
    for (std::size_t i = 0; i < outputs.size(); ++i) values[model.outputs(layer)[i]] = outputs[i];
  }
  return values.back();
}

std::vector<at::Tensor> random_batch(const RecommenderInputs& inputs) {
  at::manual_seed(8);
  std::vector<at::Tensor> batch = {at::randn({12, inputs.numeric}), at::randn({12, inputs.rows()}),
                                   at::rand({12}).lt(0.4).to(at::kFloat)};
  batch[2][3] = static_cast<float>(kIgnoredTarget);
  return batch;
}

double loss_of(const Sequential& model, const Weights& weights, std::span<const at::Tensor> batch) {
  const at::NoGradGuard no_grad;
  LossSink sink;
  output_of(model, weights, batch, {.training = true, .seed = 1, .loss = &sink});
  return sink.value();
}

// Adds `step` times the direction.
void shift(std::span<const at::Tensor> tensors, std::span<const at::Tensor> direction,
           double step) {
  const at::NoGradGuard no_grad;
  for (std::size_t i = 0; i < tensors.size(); ++i) tensors[i].detach().add_(direction[i], step);
}

// Along random directions, with dropout, whose mask is the same each time.
TEST_P(Recommenders, GradientsEqualFiniteDifferences) {
  auto [name, options, inputs] = GetParam();
  options.activation = HiddenActivation::kNone;  // differences across a kink prove nothing
  const Sequential model = make_recommender(options, inputs);
  const Weights weights = first_weights(model);
  std::vector<at::Tensor> batch = random_batch(inputs);
  at::Tensor rows = batch[1].clone().requires_grad_(true);
  batch[1] = rows;
  LossSink sink;
  output_of(model, weights, batch, {.training = true, .seed = 1, .loss = &sink})
      .backward(at::ones({}));
  EXPECT_NEAR(sink.value(), loss_of(model, weights, batch), 1e-5 * sink.value());

  std::map<std::string, std::vector<at::Tensor>> groups = {{"rows", {rows}}};
  for (int layer = 0; layer < model.num_layers(); ++layer)
    for (std::size_t i = 0; i < weights[layer].size(); ++i)
      if (model.layout(layer).specs[i].statistic == Statistic::kNone)
        groups[model.name(layer)].push_back(weights[layer][i]);
  constexpr double kStep = 5e-3;
  for (const auto& [group, tensors] : groups) {
    std::vector<at::Tensor> direction;
    double expected = 0;
    for (const at::Tensor& tensor : tensors) {
      direction.push_back(at::randn_like(tensor.detach()) / std::sqrt(tensor.numel()));
      expected += (tensor.grad() * direction.back()).sum().item<double>();
    }
    shift(tensors, direction, kStep);
    const double above = loss_of(model, weights, batch);
    shift(tensors, direction, -2 * kStep);
    const double below = loss_of(model, weights, batch);
    shift(tensors, direction, kStep);
    EXPECT_NEAR((above - below) / (2 * kStep), expected, 1e-2 * std::abs(expected) + 2e-3) << group;
  }
}

TEST_P(Recommenders, ScoresAreEqualWithAndWithoutLabels) {
  const auto& [name, options, inputs] = GetParam();
  const Sequential scores_model = make_recommender(options, inputs);
  const Sequential logits_model = make_recommender(options, inputs, RecommenderOutput::kLogits);
  EXPECT_EQ(logits_model.batch_inputs(), (std::vector<std::string>{"numeric", "rows"}));
  const Weights weights = first_weights(scores_model);
  const std::vector<at::Tensor> batch = random_batch(inputs);
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> scores;
  LossSink sink{.scores = &scores};
  output_of(scores_model, weights, batch, {.loss = &sink});
  const at::Tensor logits = output_of(logits_model, weights, batch, {});
  ASSERT_EQ(logits.sizes(), at::IntArrayRef({12}));
  EXPECT_TRUE(at::equal(logits, at::cat(scores)));
  EXPECT_GT(logits.std().item<double>(), 0.01);
}

Kind dlrm(const char* name, BatchNormPlace norm, double dropout, HiddenActivation activation) {
  return {name,
          {.bottom = {64, 32},
           .top = {128, 64},
           .dropout = dropout,
           .batch_norm = norm,
           .activation = activation}};
}

Kind dcn(const char* name, std::int64_t rank, Interaction interaction) {
  return {
      name,
      {.kind = RecommenderKind::kDcn, .top = {128, 64}, .interaction = interaction, .rank = rank}};
}

Kind deep_wide(const char* name, BatchNormPlace norm, bool wide, std::int64_t numeric,
               double dropout = 0) {
  return {
      name,
      {.kind = RecommenderKind::kDeepWide,
       .bottom = numeric > 0 ? std::vector<std::int64_t>{64, 256} : std::vector<std::int64_t>{256},
       .dropout = dropout,
       .batch_norm = norm,
       .wide = wide},
      {.numeric = numeric, .row_widths = {32, 32, 64, 32}}};
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, Recommenders,
    testing::Values(dlrm("Dlrm", BatchNormPlace::kNone, 0, HiddenActivation::kRelu),
                    dlrm("DlrmNormDropout", BatchNormPlace::kAll, 0.1, HiddenActivation::kRelu),
                    dlrm("DlrmLinear", BatchNormPlace::kNone, 0, HiddenActivation::kNone),
                    dlrm("DlrmLinearDropout", BatchNormPlace::kAll, 0.1, HiddenActivation::kNone),
                    dcn("Dcn", 0, Interaction::kStacked),
                    dcn("DcnLowRank", 32, Interaction::kParallel),
                    deep_wide("DeepWide", BatchNormPlace::kAll, true, 16),
                    deep_wide("Deep", BatchNormPlace::kNone, false, 16),
                    deep_wide("DeepDropout", BatchNormPlace::kNone, true, 16, 0.1),
                    deep_wide("WideRowsDropout", BatchNormPlace::kBottom, true, 0, 0.1),
                    deep_wide("WideRows", BatchNormPlace::kBottom, true, 0)),
    [](const auto& info) { return std::string(info.param.name); });

TEST(Recommender, RefusesContradictoryOptions) {
  const RecommenderInputs inputs{.numeric = 3, .row_widths = {8, 8}};
  const auto refuses = [&](const RecommenderOptions& options, const RecommenderInputs& of,
                           const std::string& where) {
    try {
      make_recommender(options, of);
      ADD_FAILURE() << where << " was not refused";
    } catch (const UserError& error) {
      EXPECT_EQ(error.text().where, where);
    }
  };
  using enum RecommenderKind;
  refuses({}, {.numeric = 3}, "model.kind");
  refuses({.top = {0}}, inputs, "model.top");
  refuses({.bottom = {4}}, inputs, "model.interaction");
  refuses({.interaction = Interaction::kStacked}, inputs, "model.interaction");
  refuses({}, {.numeric = 3, .row_widths = {8, 12}}, "model.interaction");
  refuses({}, {.row_widths = {8}}, "model.interaction");
  refuses({.bottom = {8}}, {.row_widths = {8, 8}}, "model.bottom");
  refuses({.rank = 4}, inputs, "model.rank");
  refuses({.wide = false}, inputs, "model.wide");
  refuses({.kind = kDcn, .bottom = {8}}, inputs, "model.bottom");
  refuses({.kind = kDcn, .interaction = Interaction::kDot}, inputs, "model.interaction");
  refuses({.kind = kDeepWide, .bottom = {8}}, inputs, "model.bottom");
  refuses({.kind = kDeepWide, .cross_layers = 2}, inputs, "model.cross_layers");
  EXPECT_THROW(make_recommender({}, inputs, RecommenderOutput::kLoss, {.ranks = 2}), UserError);
  EXPECT_THROW(make_recommender({}, inputs, RecommenderOutput::kLoss, {}, at::kBFloat16),
               UserError);
}

TEST(Recommender, ReadsWidthsFromRecipe) {
  RecommenderOptions options;
  OptionSet set;
  describe(set, "model", options);
  set.load_yaml("model: {kind: dcn, top: [64, 32, 8], rank: 4, interaction: parallel}\n", "recipe");
  EXPECT_EQ(options.top, (std::vector<std::int64_t>{64, 32, 8}));
  EXPECT_TRUE(options.bottom.empty());
  set.set("model.bottom=[5]");
  EXPECT_EQ(options.bottom, std::vector<std::int64_t>{5});
  EXPECT_THROW(set.set("model.top=[0]"), UserError);
  EXPECT_THROW(set.set("model.top=[a]"), UserError);
  RecommenderOptions again;
  OptionSet other;
  describe(other, "model", again);
  other.load_yaml(set.to_yaml(), "written");
  EXPECT_EQ(again, options);
}

}  // namespace
}  // namespace strata
