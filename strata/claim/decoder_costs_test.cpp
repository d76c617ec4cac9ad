#include "strata/claim/decoder_costs.h"

#include <gtest/gtest.h>

#include <numeric>

#include "strata/claim/claim_machines.h"

namespace strata {
namespace {

constexpr DecoderShape kShape{
    .layers = 3, .width = 512, .heads = 8, .vocabulary = 1024, .tokens = 256};

// Narayanan et al. 2021, equations 2 and 3.
TEST(DecoderShape, CountsParametersAndOperationsAsThePaper) {
  const double l = 3, h = 512, v = 1024, s = 256, b = 4;
  EXPECT_DOUBLE_EQ(parameters_of(kShape),
                   12 * l * h * h * (1 + 13 / (12 * h) + (v + s) / (12 * l * h)));
  EXPECT_DOUBLE_EQ(step_flops(kShape, b, true),
                   96 * b * s * l * h * h * (1 + s / (6 * h) + v / (16 * l * h)));
  EXPECT_DOUBLE_EQ(step_flops(kShape, b, false),
                   72 * b * s * l * h * h * (1 + s / (6 * h) + v / (12 * l * h)));
}

TEST(DecoderCosts, HoldEveryParameterOnce) {
  for (const bool tied : {true, false})
    for (const int ranks : {1, 2, 8}) {
      DecoderShape shape = kShape;
      shape.tied = tied;
      shape.learned_positions = false;  // every tensor-parallel rank has all of them
      const DecoderModel model =
          decoder_model(shape, {.split = {.tensor_ranks = ranks}}, precision_convention("mixed"),
                        claim_machine("a100-selene"));
      double weights = 0, states = 0, flops = 0;
      for (const LayerCost& layer : model.costs.layers) {
        weights += static_cast<double>(layer.weight_bytes);
        states += static_cast<double>(layer.state_bytes);
        flops += layer.forward_flops;
      }
      const double parameters = parameters_of(shape);
      EXPECT_NEAR(weights * ranks, 2 * parameters, 100);
      EXPECT_NEAR(states * ranks, 12 * parameters, 100);
      const double masked = 3 * static_cast<double>(shape.layers) * attention_flops(shape) / 2;
      EXPECT_NEAR(3 * flops * ranks, step_flops(shape, 1, false) - masked, 1);
      EXPECT_EQ(model.dataflow.ties.size(), tied ? 1U : 0U);
    }
}

TEST(DecoderCosts, MoreRecomputeKeepsLessAndTakesLonger) {
  std::int64_t saved = INT64_MAX;
  double seconds = 0;
  for (const Recompute level : kRecomputeLevels) {
    const DecoderModel model = decoder_model(
        kShape, {.recompute = level}, precision_convention("mixed"), claim_machine("a100-selene"));
    const LayerCost& block = model.costs.layers[1];
    EXPECT_LT(block.saved_bytes, saved) << name_of(level);
    EXPECT_GE(block.backward_seconds, seconds) << name_of(level);
    saved = block.saved_bytes;
    seconds = block.backward_seconds;
  }
}

// Korthikanti et al. 2022, table 2, with a batch of two and a width at which 5 a s / h is 20.
TEST(ActivationBytes, AreThePapersFormulas) {
  constexpr LayerSplit kOne{.samples = 2}, kTensor{.samples = 2, .tensor_ranks = 4},
      kSequence{.samples = 2, .tensor_ranks = 4, .sequence_parallel = true};
  const double unit = 256.0 * 2 * 512, scores = 5.0 * 8 * 256 / 512;
  using enum PublishedRecompute;
  const auto units = [&](const LayerSplit& split, PublishedRecompute recompute) {
    return published_activation_bytes(kShape, split, recompute) / unit;
  };
  EXPECT_DOUBLE_EQ(units(kOne, kNone), 34 + scores);
  EXPECT_DOUBLE_EQ(units(kTensor, kNone), 10 + (24 + scores) / 4);
  EXPECT_DOUBLE_EQ(units(kSequence, kNone), (34 + scores) / 4);
  EXPECT_DOUBLE_EQ(units(kTensor, kSelective), 10 + 24.0 / 4);
  EXPECT_DOUBLE_EQ(units(kSequence, kSelective), 34.0 / 4);
  EXPECT_DOUBLE_EQ(units(kOne, kFull), 2);
  EXPECT_DOUBLE_EQ(units(kSequence, kFull), 0.5);
}

TEST(ActivationBytes, Fp32DoublesAllButTheMasks) {
  const LayerSplit half{.samples = 1}, single{.samples = 1, .element_bytes = 4};
  const double unit = 256.0 * 512, masks = 2 + 8.0 * 256 / 512;
  using enum PublishedRecompute;
  EXPECT_DOUBLE_EQ(published_activation_bytes(kShape, single, kNone),
                   2 * published_activation_bytes(kShape, half, kNone) - masks * unit);
}

}  // namespace
}  // namespace strata
