// Compares ATen's primitives with the host's: updates, scalars and statistics bit by bit; sums of
// squares, which are added in another order, within 1e-14.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <bit>
#include <limits>
#include <vector>

#include "strata/device/step_scalars.h"
#include "strata/optim/gradient_norm.h"
#include "strata/optim/optimizer_options.h"
#include "strata/optim/step_primitives.h"

namespace strata {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

at::Tensor bits_of(const at::Tensor& x) {
  return x.view(x.element_size() == 4 ? at::kInt : at::kShort);
}

struct Form {
  const char* name;
  at::ScalarType gradients = at::kFloat;
  at::ScalarType rounded = at::kFloat;  // fp32: none
  bool split = false;
};

UpdateRange random_range(const Form& form, int slots, std::int64_t numel) {
  const at::TensorOptions floats = host_options(at::kFloat);
  at::Tensor weights = at::randn({numel}, floats), gradients = at::randn({numel}, floats);
  weights[0] = kInfinity;
  weights[1] = std::bit_cast<float>(0x3F808000u);  // its lower half rounds up
  weights[2] = -0.0f;
  gradients[3] = kInfinity;
  gradients[4] = std::numeric_limits<float>::quiet_NaN();
  UpdateRange range{.weights = weights, .gradients = gradients.to(form.gradients)};
  for (int i = 0; i < slots; ++i) range.slots.push_back(at::rand({numel}, floats));
  range.decay_numel = numel * 2 / 3;
  if (form.split) {
    const at::Tensor high = at::empty({numel}, host_options(at::kBFloat16));
    range.remainder = at::empty({numel}, host_options(at::kShort));
    kernels::split_weights(weights.const_data_ptr<float>(),
                           {static_cast<std::uint16_t*>(high.data_ptr()),
                            static_cast<std::uint16_t*>(range.remainder.data_ptr())},
                           numel);
    range.weights = high;
  }
  if (form.rounded != at::kFloat) range.rounded = weights.to(form.rounded);
  return range;
}

UpdateRange copy_of(const UpdateRange& range) {
  const auto copy = [](const at::Tensor& x) { return x.defined() ? x.clone() : x; };
  UpdateRange result{copy(range.weights), range.gradients,     {},
                     range.decay_numel,   copy(range.rounded), copy(range.remainder)};
  for (const at::Tensor& slot : range.slots) result.slots.push_back(copy(slot));
  return result;
}

void expect_equal_bits(const UpdateRange& a, const UpdateRange& b) {
  EXPECT_TRUE(bits_of(a.weights).equal(bits_of(b.weights)));
  for (std::size_t i = 0; i < a.slots.size(); ++i)
    EXPECT_TRUE(bits_of(a.slots[i]).equal(bits_of(b.slots[i]))) << i;
  if (a.rounded.defined())
    EXPECT_TRUE(a.rounded.equal(b.rounded) || a.rounded.isnan().any().item<bool>());
  if (a.remainder.defined()) EXPECT_TRUE(a.remainder.equal(b.remainder));
}

TEST(AtenStepPrimitives, UpdatesHaveBitsOfHost) {
  at::manual_seed(8);
  const StepPrimitives &host = host_step_primitives(), &aten = aten_step_primitives();
  const OptimizerOptions rules[] = {
      {.kind = OptimizerKind::kAdamW, .weight_decay = 0.1},
      {.kind = OptimizerKind::kSgd, .weight_decay = 0.1, .momentum = 0},
      {.kind = OptimizerKind::kSgd, .weight_decay = 0, .momentum = 0.9},
      {.kind = OptimizerKind::kAdagrad, .weight_decay = 0.01}};
  const Form forms[] = {{"fp32"},
                        {"bf16 copy", at::kBFloat16, at::kBFloat16},
                        {"fp16 copy", at::kHalf, at::kHalf},
                        {"split", at::kFloat, at::kFloat, true},
                        {"split, bf16 gradients", at::kBFloat16, at::kFloat, true}};
  for (const OptimizerOptions& options : rules) {
    for (const Form& form : forms) {
      SCOPED_TRACE(testing::Message() << name_of(options.kind) << " " << form.name);
      const auto rule = rule_of(options);
      const UpdateRange start = random_range(form, kernels::num_slots(rule), 3001);
      StepScalars scalars;
      scalars.step = 6;
      scalars.skipped_updates = 2;
      scalars.learning_rate = 3e-3;
      scalars.factor = 0.3;
      UpdateRange ours = copy_of(start), own = copy_of(start);
      aten.update(rule, ours, aten.begin_update(constants_of(options), scalars, Device{}));
      host.update(rule, own, host.begin_update(constants_of(options), scalars, Device{}));
      EXPECT_FALSE(bits_of(ours.weights).equal(bits_of(start.weights)));
      expect_equal_bits(ours, own);
      if (ours.rounded.defined())
        EXPECT_TRUE(bits_of(ours.rounded.narrow(0, 5, 2996))
                        .equal(bits_of(own.rounded.narrow(0, 5, 2996))));
      scalars.skip = 1;
      UpdateRange skipped = copy_of(start);
      aten.update(rule, skipped, aten.begin_update(constants_of(options), scalars, Device{}));
      expect_equal_bits(skipped, start);
    }
  }
}

TEST(AtenStepPrimitives, UpdatesInPiecesHaveSameBits) {
  const OptimizerOptions options{.kind = OptimizerKind::kSgd, .weight_decay = 0.1, .momentum = 0};
  const std::int64_t numel = (1 << 22) + 5;
  StepScalars scalars;
  scalars.learning_rate = 0.5;
  for (const std::int64_t decayed : {std::int64_t{0}, std::int64_t{3}, numel - 1, numel}) {
    UpdateRange range{.weights = at::ones({numel}, host_options(at::kFloat)),
                      .gradients = at::full({numel}, 0.5, host_options(at::kFloat)),
                      .decay_numel = decayed};
    const StepPrimitives& aten = aten_step_primitives();
    aten.update(rule_of(options), range,
                aten.begin_update(constants_of(options), scalars, Device{}));
    const float plain = 1 - 0.5f * 0.5f, pulled = 1 - 0.5f * (0.5f + 0.1f * 1);
    EXPECT_TRUE(range.weights.narrow(0, 0, decayed).eq(pulled).all().item<bool>());
    EXPECT_TRUE(range.weights.narrow(0, decayed, numel - decayed).eq(plain).all().item<bool>());
  }
}

TEST(AtenStepPrimitives, BlockSquaresEqualHostForAnyCut) {
  at::manual_seed(9);
  const std::int64_t numel = 7 * kFlatBlock + 300;
  const at::Tensor gradients =
      at::randn({numel}, host_options(at::kFloat)) * 1e20;  // squares need fp64
  const FlatRange counted[] = {{0, 2 * kFlatBlock + 100}, {2 * kFlatBlock + 200, numel}};
  const auto sums_of = [&](const StepPrimitives& by, FlatRange part) {
    const at::Tensor sums = at::full({num_blocks(numel)}, -1.0, host_options(at::kDouble));
    by.block_sums(gradients.narrow(0, part.begin, part.size()), part, counted, sums);
    return sums;
  };
  const at::Tensor whole = sums_of(aten_step_primitives(), {0, numel});
  const at::Tensor own = sums_of(host_step_primitives(), {0, numel});
  EXPECT_LT(((whole - own).abs() / own).max().item<double>(), 1e-14);
  const at::Tensor parts = sums_of(aten_step_primitives(), {0, 3 * kFlatBlock}) +
                           sums_of(aten_step_primitives(), {3 * kFlatBlock, numel});
  EXPECT_TRUE(parts.equal(whole));
}

TEST(AtenStepPrimitives, LayerSumsEqualHost) {
  const at::Tensor blocks = at::rand({2000}, host_options(at::kDouble));
  const LayerBlocks layers[] = {{0, 1500, 2}, {1500, 1501, 0}, {1501, 2000, 1}};
  const at::Tensor ours = at::full({4}, 9.0, host_options(at::kDouble)), own = ours.clone();
  aten_step_primitives().sum_layers(blocks, layers, ours);
  host_step_primitives().sum_layers(blocks, layers, own);
  EXPECT_LT(((ours - own).abs() / own).max().item<double>(), 1e-14);
  EXPECT_EQ(ours[3].item<double>(), 9);
}

TEST(AtenStepPrimitives, StepEndEqualsHost) {
  for (const double squares :
       {4.0, 1e300, static_cast<double>(kInfinity), std::numeric_limits<double>::quiet_NaN()}) {
    for (const double clip : {0.0, 0.5}) {
      for (const double loss_scale : {1.0, 1024.0}) {
        for (int flags = 0; flags < 8; ++flags) {
          for (const std::int64_t good : {std::int64_t{3}, LossScale::kGrowthSteps - 1}) {
            StepScalars ours;
            ours.loss_scale = loss_scale;
            ours.may_skip = flags & 1;
            ours.has_gradients = flags >> 1 & 1;
            ours.updates = flags >> 2;
            ours.good_steps = good;
            ours.skipped_updates = 5;
            StepScalars own = ours;
            const at::Tensor sums = at::tensor({squares, 0.0, 12.5}, host_options(at::kDouble));
            aten_step_primitives().end_step(sums, clip, ours);
            host_step_primitives().end_step(sums, clip, own);
            EXPECT_EQ(ours.loss, own.loss);
            for (double StepScalars::* field : {&StepScalars::squares, &StepScalars::norm,
                                                &StepScalars::factor, &StepScalars::loss_scale})
              EXPECT_EQ(std::bit_cast<std::uint64_t>(ours.*field) << 1,
                        std::bit_cast<std::uint64_t>(own.*field) << 1);  // a NaN's sign is free
            EXPECT_EQ(ours.skip, own.skip);
            EXPECT_EQ(ours.good_steps, own.good_steps);
            EXPECT_EQ(ours.skipped_updates, own.skipped_updates);
            EXPECT_EQ(ours.may_skip, own.may_skip);
          }
        }
      }
    }
  }
}

TEST(AtenStepPrimitives, StatisticsHaveBitsOfHost) {
  const auto fresh = [] {
    return StatisticRange{at::linspace(-2, 3, 40, host_options(at::kFloat)),
                          at::linspace(7, 9, 40, host_options(at::kDouble)), 0.1};
  };
  for (const int skip : {0, 1}) {
    StepScalars scalars;
    scalars.skip = skip;
    const StatisticRange ours = fresh(), own = fresh();
    aten_step_primitives().move_statistic(ours, scalars);
    host_step_primitives().move_statistic(own, scalars);
    EXPECT_TRUE(ours.values.equal(own.values));
    EXPECT_EQ(ours.values.equal(fresh().values), skip == 1);
  }
}

}  // namespace
}  // namespace strata
