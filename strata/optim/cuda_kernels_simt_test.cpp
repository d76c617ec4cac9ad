// Compares the kernels of a step's end with the host's code, bit by bit.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "strata/device/simt/simt_array_test.h"
#include "strata/device/step_scalars.h"
#include "strata/optim/cuda_kernels.h"
#include "strata/optim/gradient_norm.h"
#include "strata/optim/optimizer_options.h"
#include "strata/optim/step_end.h"

namespace strata {
namespace {

using kernels::Element;
using kernels::UpdateRule;
using simt::SimtArray;
using simt::SimtVector;

class CudaOptim : public testing::Test {
 protected:
  void SetUp() override {
    if (!simt::has_machine()) GTEST_SKIP() << "no CUDA device";
  }
  SimtArray random(Element element, std::int64_t n, float scale = 1, std::int64_t offset = 0) {
    return SimtArray::random(element, n, generator_, scale, offset);
  }
  std::mt19937 generator_{17};
};

TEST_F(CudaOptim, BlockSquaresHaveBitsOfHost) {
  simt::in_every_order([&] {
    for (const std::int64_t n : {0, 1, 15, 17, 1023, 1024, 1025, 70000, 131072})
      for (const std::int64_t offset : {0, 1}) {
        SimtArray x = random(Element::kFp32, n, 3, offset);
        const auto blocks = static_cast<std::size_t>(num_blocks(n));
        SimtVector<double> sums(blocks + 1, 0.75);
        std::vector<double> right(blocks);
        cuda::add_block_squares(x.device_floats(), sums.device(), n, nullptr);
        sums.fetch();
        block_squares(x.host_floats(), right.data(), n);
        for (std::size_t block = 0; block < blocks; ++block)
          ASSERT_EQ(sums[block], 0.75 + right[block]) << n << " " << block;
        ASSERT_EQ(sums[blocks], 0.75);
      }
  });
}

StepScalars end_on_machine(StepScalars scalars, const std::vector<double>& found, double clip) {
  SimtVector<StepScalars> step(1, scalars);
  SimtVector<double> sums(found);
  cuda::end_step(sums.device(), static_cast<std::int64_t>(found.size()), clip, step.device(),
                 nullptr);
  step.fetch();
  return step[0];
}

TEST_F(CudaOptim, LayerSumsAreIndependentOfPosition) {
  simt::in_every_order([&] {
    std::vector<double> blocks(5000);
    std::normal_distribution<double> normal(3, 1);
    for (double& block : blocks) block = normal(generator_);
    const std::vector<LayerBlocks> layers = {{0, 0, 2}, {0, 1, 0}, {1, 3000, 3}, {3000, 5000, 1}};
    SimtVector<double> on_machine(blocks), sums(5, 7.0);
    SimtVector<LayerBlocks> of(layers);
    cuda::sum_layers(on_machine.device(), of.device(), 4, sums.device(), nullptr);
    sums.fetch();
    std::vector<double> right(5, 7.0);
    sum_layers(blocks.data(), layers, right.data());
    for (std::size_t i = 0; i < 5; ++i) EXPECT_NEAR(sums[i], right[i], 1e-14 * right[i]) << i;
    // The same blocks alone, at another offset, have the same sum.
    SimtVector<double> again(std::vector<double>(blocks.begin() + 3000, blocks.end())), sum(1, 0.0);
    SimtVector<LayerBlocks> whole(1, LayerBlocks{0, 2000, 0});
    cuda::sum_layers(again.device(), whole.device(), 1, sum.device(), nullptr);
    sum.fetch();
    EXPECT_EQ(sum[0], sums[1]);
  });
}

TEST_F(CudaOptim, StatisticsHaveBitsOfHost) {
  for (const std::int64_t skip : {0, 1}) {
    SimtArray values = random(Element::kFp32, 300);
    std::vector<double> numbers;
    for (const float number : random(Element::kFp32, 300).floats()) numbers.push_back(number / 3.0);
    SimtVector<double> found(numbers);
    std::vector<float> right = values.floats();
    for (std::size_t i = 0; i < right.size() && skip == 0; ++i)
      right[i] = static_cast<float>((1 - 0.1) * right[i] + 0.1 * numbers[i]);
    SimtVector<StepScalars> scalars(1, StepScalars{.skip = skip});
    cuda::move_statistic(values.device_floats(), found.device(), 0.1, 300, scalars.device(),
                         nullptr);
    values.fetch();
    EXPECT_TRUE(same_bits(values, SimtArray::of(Element::kFp32, right)));
  }
}

TEST_F(CudaOptim, StepEndHasBitsOfHost) {
  const double infinity = std::numeric_limits<double>::infinity();
  const std::vector<std::vector<double>> gradients = {
      {}, {4, 9.5, 1e-3}, {1e300, 1e10, 0.1}, {1, infinity}, {NAN}};
  for (const auto& squares : gradients)
    for (const double clip : {0.0, 1.0, 100.0})
      for (const std::int64_t may_skip : {0, 1})
        for (const std::int64_t has_gradients : {0, 1})
          for (const std::int64_t updates : {0, 1})
            for (const std::int64_t good_steps : {0, 1999})
              for (const double loss_scale : {1.0, 65536.0}) {
                const StepScalars begun{.step = 5,
                                        .has_gradients = has_gradients,
                                        .updates = updates,
                                        .loss_scale = loss_scale,
                                        .may_skip = may_skip,
                                        .good_steps = good_steps,
                                        .skipped_updates = 2};
                std::vector<double> sums = squares;
                sums.push_back(1.5);  // the loss
                const StepScalars found = end_on_machine(begun, sums, clip);
                StepScalars right = begun;
                end_step(sums, clip, right);
                const auto same = [](double a, double b) {
                  return a == b || (std::isnan(a) && std::isnan(b));
                };
                ASSERT_TRUE(same(found.squares, right.squares));
                ASSERT_TRUE(same(found.norm, right.norm));
                ASSERT_TRUE(same(found.factor, right.factor));
                ASSERT_EQ(found.skip, right.skip);
                ASSERT_EQ(found.loss_scale, right.loss_scale);
                ASSERT_EQ(found.good_steps, right.good_steps);
                ASSERT_EQ(found.skipped_updates, right.skipped_updates);
                ASSERT_EQ(found.loss, 1.5);
                ASSERT_EQ(found.step, 5);
              }
}

constexpr UpdateRule kRules[] = {UpdateRule::kAdamW, UpdateRule::kSgd, UpdateRule::kSgdMomentum,
                                 UpdateRule::kAdagrad};

OptimizerOptions options_of(UpdateRule rule) {
  OptimizerOptions options;
  options.kind = rule == UpdateRule::kAdamW     ? OptimizerKind::kAdamW
                 : rule == UpdateRule::kAdagrad ? OptimizerKind::kAdagrad
                                                : OptimizerKind::kSgd;
  if (rule == UpdateRule::kSgd) options.momentum = 0;
  return options;
}

TEST_F(CudaOptim, ConstantsEqualThoseOfHost) {
  for (const UpdateRule rule : kRules)
    for (const std::int64_t skipped : {0, 3}) {
      const OptimizerOptions options = options_of(rule);
      const StepScalars begun{
          .step = 11, .learning_rate = 3e-4, .skipped_updates = skipped, .factor = 0.37};
      SimtVector<StepScalars> scalars(1, begun);
      SimtVector<kernels::UpdateStep> step(1, kernels::UpdateStep{});
      cuda::begin_update(constants_of(options), scalars.device(), step.device(), nullptr);
      step.fetch();
      const kernels::UpdateStep right = update_step(options, 12 - skipped, 3e-4, 0.37);
      EXPECT_EQ(step[0].rule, right.rule);
      const auto numbers = [](const kernels::UpdateStep& of) {
        return std::vector<float>{of.gradient_factor, of.kept,       of.penalty,
                                  of.mean_kept,       of.mean_share, of.square_kept,
                                  of.square_share,    of.epsilon,    of.momentum};
      };
      EXPECT_EQ(numbers(step[0]), numbers(right));
      // Depends on powers of beta.
      EXPECT_FLOAT_EQ(step[0].size, right.size);
      EXPECT_FLOAT_EQ(step[0].root_scale, right.root_scale);
    }
}

// Which array of an update is misaligned: one element after a multiple of 16 bytes.
enum class Off { kNone, kWeights, kGradients, kFirst, kSecond, kRounded, kHigh, kLow, kAll };

// The arrays of an update, on the device and on the host.
struct Arrays {
  enum class Weights { kFp32, kBf16Copy, kFp16Copy, kSplit };

  SimtArray weights, gradients, first, second, rounded;
  std::vector<std::uint16_t> high, low;
  SimtVector<std::uint16_t> device_high, device_low;
  Weights kind;
  Off off;

  Arrays(const std::vector<float>& values, const SimtArray& gradient,
         const std::vector<float>& slot, Weights kind_of, Off off_border)
      : weights(SimtArray::of(Element::kFp32, values, offset(off_border, Off::kWeights))),
        gradients(SimtArray::of(gradient.element(), gradient.floats(),
                                offset(off_border, Off::kGradients))),
        first(SimtArray::of(Element::kFp32, slot, offset(off_border, Off::kFirst))),
        second(SimtArray::of(Element::kFp32, slot, offset(off_border, Off::kSecond))),
        rounded(SimtArray::poisoned(kind_of == Weights::kFp16Copy ? Element::kFp16 : Element::kBf16,
                                    weights.size(), offset(off_border, Off::kRounded))),
        high(values.size()),
        low(values.size()),
        device_high(offset_by(split(values, high, low), offset(off_border, Off::kHigh))),
        device_low(offset_by(low, offset(off_border, Off::kLow))),
        kind(kind_of),
        off(off_border) {}

  static std::int64_t offset(Off off, Off array) { return off == array || off == Off::kAll; }
  static std::vector<std::uint16_t> offset_by(std::vector<std::uint16_t> values,
                                              std::int64_t others) {
    values.insert(values.begin(), static_cast<std::size_t>(others), 0);
    return values;
  }
  std::uint16_t found_high(std::int64_t i) const {
    return device_high[offset(off, Off::kHigh) + i];
  }
  std::uint16_t found_low(std::int64_t i) const { return device_low[offset(off, Off::kLow) + i]; }

  static std::vector<std::uint16_t> split(const std::vector<float>& values,
                                          std::vector<std::uint16_t>& high,
                                          std::vector<std::uint16_t>& low) {
    kernels::split_weights(values.data(), {high.data(), low.data()},
                           static_cast<std::int64_t>(values.size()));
    return high;
  }

  kernels::UpdateArrays on_machine() {
    kernels::UpdateArrays arrays = common();
    arrays.gradients = gradients.device();
    arrays.slots[0] = first.device_floats();
    arrays.slots[1] = second.device_floats();
    if (kind == Weights::kSplit) {
      arrays.split = {device_high.device() + offset(off, Off::kHigh),
                      device_low.device() + offset(off, Off::kLow)};
    } else {
      arrays.weights = weights.device_floats();
    }
    if (has_copy()) arrays.rounded = rounded.device();
    return arrays;
  }
  kernels::UpdateArrays on_host() {
    kernels::UpdateArrays arrays = common();
    arrays.gradients = gradients.host();
    arrays.slots[0] = first.host_floats();
    arrays.slots[1] = second.host_floats();
    if (kind == Weights::kSplit) {
      arrays.split = {high.data(), low.data()};
    } else {
      arrays.weights = weights.host_floats();
    }
    if (has_copy()) arrays.rounded = rounded.host();
    return arrays;
  }
  bool has_copy() const { return kind == Weights::kBf16Copy || kind == Weights::kFp16Copy; }
  kernels::UpdateArrays common() const {
    return {.gradient_element = gradients.element(),
            .rounded_element = rounded.element(),
            .decay_numel = weights.size() / 3};
  }
  void fetch() {
    for (SimtArray* array : {&weights, &gradients, &first, &second, &rounded}) array->fetch();
    device_high.fetch();
    device_low.fetch();
  }
};

TEST_F(CudaOptim, UpdatesHaveBitsOfHost) {
  using Weights = Arrays::Weights;
  simt::in_every_order([&] {
    for (const UpdateRule rule : kRules)
      for (const Element element : {Element::kFp32, Element::kBf16, Element::kFp16})
        for (const Weights kind :
             {Weights::kFp32, Weights::kBf16Copy, Weights::kFp16Copy, Weights::kSplit})
          for (const std::int64_t n : {1, 4, 6, 1025})
            for (int array = 0; array <= static_cast<int>(Off::kAll); ++array) {
              const Off off{array};
              SCOPED_TRACE(testing::Message()
                           << "rule " << int(rule) << ", gradient " << int(element) << ", weights "
                           << int(kind) << ", n " << n << ", off a border " << array);
              std::vector<float> values = random(Element::kFp32, n).floats();
              if (n > 5) values[5] = NAN;
              std::vector<float> slot = random(Element::kFp32, n).floats();
              for (float& value : slot) value = std::abs(value);
              const SimtArray gradient = random(element, n, 0.1f);
              const auto fresh = [&] { return Arrays(values, gradient, slot, kind, off); };
              Arrays found = fresh(), right = fresh();
              const kernels::UpdateStep step = update_step(options_of(rule), 3, 0.01, 0.5);
              SimtVector<kernels::UpdateStep> on_machine(1, step);
              SimtVector<StepScalars> scalars(1, StepScalars{});
              cuda::update(rule, on_machine.device(), found.on_machine(), n, scalars.device(),
                           nullptr);
              found.fetch();
              kernels::update(step, right.on_host(), {0, n});
              for (auto array :
                   {&Arrays::weights, &Arrays::first, &Arrays::second, &Arrays::rounded})
                ASSERT_TRUE(same_bits(found.*array, right.*array));
              for (std::int64_t i = 0; i < n; ++i) {
                ASSERT_EQ(found.found_high(i), right.high[i]);
                ASSERT_EQ(found.found_low(i), right.low[i]);
              }
              ASSERT_TRUE(same_bits(found.gradients, gradient));
            }
  });
}

TEST_F(CudaOptim, SkippedUpdateChangesNothing) {
  SimtArray gradient = random(Element::kFp32, 10), slot = random(Element::kFp32, 10);
  const std::vector<float> values = random(Element::kFp32, 10).floats();
  const auto fresh = [&] {
    return Arrays(values, gradient, slot.floats(), Arrays::Weights::kBf16Copy, Off::kNone);
  };
  Arrays found = fresh(), before = fresh();
  SimtVector<kernels::UpdateStep> step(1, update_step(OptimizerOptions{}, 3, 0.01));
  SimtVector<StepScalars> scalars(1, StepScalars{.skip = 1});
  cuda::update(UpdateRule::kAdamW, step.device(), found.on_machine(), 10, scalars.device(),
               nullptr);
  found.fetch();
  for (auto array : {&Arrays::weights, &Arrays::first, &Arrays::second, &Arrays::rounded})
    EXPECT_TRUE(same_bits(found.*array, before.*array));
}

}  // namespace
}  // namespace strata
