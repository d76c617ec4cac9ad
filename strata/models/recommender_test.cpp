// What layers of recommenders say of their bytes against what they allocate: plans are made of these.
#include <gtest/gtest.h>

#include "strata/base/errors.h"
#include "strata/models/recommender.h"
#include "strata/nn/measured_bytes.h"

namespace strata {
namespace {

constexpr double kTolerance = 0.03;  // of what the layer holds: blocks of the allocator, statistics

struct Kind {
  const char* name;
  RecommenderOptions options;
  RecommenderInputs inputs = {.numeric = 16, .row_widths = {32, 32, 64, 32}};
};

class RecommenderBytes : public testing::TestWithParam<Kind> {};

TEST_P(RecommenderBytes, AreWhatOneRunMeasures) {
  const auto& [name, options, inputs] = GetParam();
  const Sequential model = make_recommender(options, inputs);
  const std::vector<TensorSpec> batch = recommender_batch(inputs, 256);
  const std::vector<TensorSpec> values = model.value_specs(batch);
  for (int layer = 0; layer < model.num_layers(); ++layer) {
    const std::vector<TensorSpec> specs = model.input_specs(layer, batch, values);
    SCOPED_TRACE(model.name(layer));
    const LayerBytes said = model.layer(layer).bytes(specs, false);
    const LayerBytes measured = measured_bytes(model.layer(layer), specs, false);
    const double small =
        kTolerance * static_cast<double>(measured.saved + measured.backward_transient) + 4096;
    EXPECT_NEAR(said.saved, measured.saved, small);
    EXPECT_NEAR(said.forward_transient, measured.forward_transient, small);
    EXPECT_NEAR(said.backward_transient, measured.backward_transient, small);
  }
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
    Kinds, RecommenderBytes,
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

TEST(Recommender, RefusesWhatDoesNotFitTogether) {
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

TEST(Recommender, ReadsItsWidthsFromARecipe) {
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
