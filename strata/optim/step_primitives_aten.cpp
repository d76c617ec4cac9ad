// Every number stays on the device: instead of a branch, where() chooses between two tensors.
// Updates call a separate operation for each rounding, as update_kernels.cpp does, so that bits
// agree.
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>

#include <algorithm>
#include <bit>

#include "strata/base/errors.h"
#include "strata/nn/aten/aten_scope.h"
#include "strata/optim/gradient_norm.h"
#include "strata/optim/step_primitives.h"

namespace strata {
namespace {

using kernels::UpdateRule;

// Elements per piece, so that temporaries stay small; a multiple of a block.
constexpr std::int64_t kPiece = 1 << 22;
static_assert(kPiece % kFlatBlock == 0);

// Indices into BegunUpdate::constants, fp32, as in UpdateStep.
enum Constant {
  kGradientFactor,
  kSize,
  kKept,
  kPenalty,
  kMeanKept,
  kMeanShare,
  kSquareKept,
  kSquareShare,
  kRootScale,
  kEpsilon,
  kMomentum
};

at::Tensor one_nan(const at::Tensor& x) {
  return at::where(x.isnan(), std::bit_cast<float>(0x7FC00000u), x);
}

// ---- Split weights, as kernels::SplitWeights. Unsigned 16-bit values are stored in int32.

at::Tensor bits_of_half(const at::Tensor& x) {
  return x.view(at::kShort).to(at::kInt).bitwise_and(0xFFFF);
}

at::Tensor joined(const at::Tensor& high, const at::Tensor& low) {
  const at::Tensor lower = bits_of_half(low);
  const at::Tensor upper = bits_of_half(high) - lower.bitwise_right_shift(15);
  return upper.bitwise_left_shift(16).bitwise_or(lower).view(at::kFloat);
}

at::Tensor high_half(const at::Tensor& w) {
  return w.view(at::kInt).to(at::kLong).add(0x8000).bitwise_right_shift(16).to(at::kShort);
}

at::Tensor low_half(const at::Tensor& w) { return w.view(at::kInt).to(at::kShort); }

// ---- Rules: compute the new weight from weight and gradient; replace the slots.

struct Element {
  at::Tensor weight, gradient;
  std::vector<at::Tensor> slots;
};

// Correctly rounded, as in the kernels: computed in fp64, because ATen's fp32 root may be MKL's,
// which is not.
at::Tensor root_of(const at::Tensor& x) { return x.to(at::kDouble).sqrt_().to(at::kFloat); }

at::Tensor updated(UpdateRule rule, const at::Tensor& constants, bool decayed, Element& e) {
  const auto constant = [&](Constant which) { return constants.select(0, which); };
  if (rule == UpdateRule::kAdamW) {
    at::Tensor &mean = e.slots[0], &square = e.slots[1];
    mean = constant(kMeanKept) * mean + constant(kMeanShare) * e.gradient;
    square = constant(kSquareKept) * square + constant(kSquareShare) * e.gradient * e.gradient;
    const at::Tensor root = root_of(square) * constant(kRootScale) + constant(kEpsilon);
    const at::Tensor kept = decayed ? e.weight * constant(kKept) : e.weight;
    return kept - constant(kSize) * mean / root;
  }
  at::Tensor g = e.gradient;
  if (decayed)  // 0 * w would turn an infinite weight into NaN
    g = at::where(constant(kPenalty).eq(0), g, g + constant(kPenalty) * e.weight);
  if (rule == UpdateRule::kSgdMomentum) g = e.slots[0] = constant(kMomentum) * e.slots[0] + g;
  if (rule != UpdateRule::kAdagrad) return e.weight - constant(kSize) * g;
  e.slots[0] = e.slots[0] + g * g;
  return e.weight - constant(kSize) * g / (root_of(e.slots[0]) + constant(kEpsilon));
}

// Updates elements [begin, begin + count), of which all are decayed or none.
void update_piece(UpdateRule rule, const UpdateRange& range, const at::Tensor& constants,
                  const at::Tensor& skip, bool decayed, std::int64_t begin, std::int64_t count) {
  const auto part = [&](const at::Tensor& x) { return x.narrow(0, begin, count); };
  const auto write = [&](const at::Tensor& to, const at::Tensor& from) {
    to.copy_(at::where(skip, to, from));
  };
  const at::Tensor weights = part(range.weights);
  const bool split = range.remainder.defined();
  Element e{split ? joined(weights, part(range.remainder)) : weights,
            as_float(part(range.gradients)) * constants.select(0, kGradientFactor)};
  for (const at::Tensor& slot : range.slots) e.slots.push_back(part(slot));
  const at::Tensor w = one_nan(updated(rule, constants, decayed, e));
  if (split) {
    write(weights.view(at::kShort), high_half(w));
    write(part(range.remainder), low_half(w));
  } else {
    write(weights, w);
  }
  if (range.rounded.defined()) write(part(range.rounded), w.to(range.rounded.scalar_type()));
  for (std::size_t i = 0; i < range.slots.size(); ++i)
    write(part(range.slots[i]), one_nan(e.slots[i]));
}

// sums[b] += the squares of block b of x; the last block ends with x.
void add_block_squares(const at::Tensor& x, const at::Tensor& sums) {
  for (std::int64_t begin = 0; begin < x.numel(); begin += kPiece) {
    const std::int64_t count = std::min(kPiece, x.numel() - begin), whole = count / kFlatBlock,
                       first = begin / kFlatBlock;
    const at::Tensor squares = x.narrow(0, begin, count).to(at::kDouble).square_();
    if (whole > 0)
      sums.narrow(0, first, whole)
          .add_(squares.narrow(0, 0, whole * kFlatBlock).view({whole, kFlatBlock}).sum(1));
    if (const std::int64_t rest = count - whole * kFlatBlock; rest > 0)
      sums.select(0, first + whole).add_(squares.narrow(0, whole * kFlatBlock, rest).sum());
  }
}

// Writes the loss scale of the next step, as LossScale.
void carry_loss_scale(const StepTensors& step, const at::Tensor& skip) {
  const at::Tensor scale = step(&StepScalars::loss_scale), good = step(&StepScalars::good_steps),
                   skipped = step(&StepScalars::skipped_updates);
  const at::Tensor dynamic = step(&StepScalars::may_skip).ne(0);
  const at::Tensor grown =
      dynamic.bitwise_and(skip.bitwise_not()).bitwise_and(good.add(1).ge(LossScale::kGrowthSteps));
  const at::Tensor halved = (scale / 2).clamp_min(LossScale::kSmallest);
  const at::Tensor next_scale = at::where(skip, halved, at::where(grown, scale * 2, scale));
  const at::Tensor next_good =
      at::where(skip.bitwise_or(grown), 0, at::where(dynamic, good + 1, good));
  const at::Tensor next_skipped = skipped + skip;
  const at::Tensor updates = step(&StepScalars::updates).ne(0);
  scale.copy_(at::where(updates, next_scale, scale));
  good.copy_(at::where(updates, next_good, good));
  skipped.copy_(at::where(updates, next_skipped, skipped));
}

class AtenStepPrimitives final : public StepPrimitives {
 public:
  void block_sums(const at::Tensor& gradients, FlatRange part, std::span<const FlatRange> counted,
                  const at::Tensor& sums) const override {
    STRATA_CHECK_EQ(gradients.scalar_type(), at::kFloat, "optim.block_sums");
    STRATA_CHECK_EQ(gradients.numel(), part.size(), "optim.block_sums");
    const AtenScope scope;
    sums.zero_();
    const auto add = [&](std::int64_t begin, std::int64_t end) {
      if (begin >= end) return;
      const std::int64_t block = begin / kFlatBlock;
      add_block_squares(gradients.narrow(0, begin - part.begin, end - begin),
                        sums.narrow(0, block, sums.numel() - block));
    };
    for (const FlatRange range : counted) {
      const std::int64_t begin = std::max(range.begin, part.begin);
      const std::int64_t end = std::min(range.end, part.end);
      const std::int64_t edge = std::min(end, num_blocks(begin) * kFlatBlock);
      add(begin, edge);  // the rest of a block that another range may have begun
      add(std::max(begin, edge), end);
    }
  }

  void sum_layers(const at::Tensor& blocks, std::span<const LayerBlocks> layers,
                  const at::Tensor& sums) const override {
    const AtenScope scope;
    for (const LayerBlocks& layer : layers)
      sums.select(0, layer.target)
          .copy_(blocks.narrow(0, layer.begin, layer.end - layer.begin).sum());
  }

  void end_step(const at::Tensor& sums, double clip, StepScalars& scalars) const override {
    const AtenScope scope;
    const StepTensors step(scalars, sums.device());
    const at::Tensor squares = sums.narrow(0, 0, sums.numel() - 1).sum();
    const at::Tensor norm = squares.sqrt() / step(&StepScalars::loss_scale);
    at::Tensor factor = norm.new_ones({});
    if (clip > 0) factor = at::where(norm.gt(clip), clip / norm, factor);
    const at::Tensor is_infinite = (norm - norm).ne(0);
    const at::Tensor skip =
        step(&StepScalars::has_gradients)
            .eq(0)
            .bitwise_or(step(&StepScalars::may_skip).ne(0).bitwise_and(is_infinite));
    step(&StepScalars::loss).copy_(sums.select(0, sums.numel() - 1));
    step(&StepScalars::squares).copy_(squares);
    step(&StepScalars::norm).copy_(norm);
    step(&StepScalars::factor).copy_(factor / step(&StepScalars::loss_scale));
    step(&StepScalars::skip).copy_(skip);
    carry_loss_scale(step, skip);
  }

  BegunUpdate begin_update(const kernels::UpdateConstants& of, const StepScalars& scalars,
                           Device device) const override {
    const AtenScope scope;
    const at::TensorOptions options = device.options(at::kDouble);
    const StepTensors step(scalars, options.device());
    const auto number = [&](double value) { return at::full({}, value, options); };
    const at::Tensor rate = step(&StepScalars::learning_rate), one = number(1);
    const at::Tensor n =
        (step(&StepScalars::step) + 1 - step(&StepScalars::skipped_updates)).to(at::kDouble);
    const bool adamw = of.rule == UpdateRule::kAdamW;
    const at::Tensor mean = adamw ? 1 - at::pow(of.beta1, n) : one;
    const at::Tensor root = adamw ? (1 - at::pow(of.beta2, n)).sqrt() : one;
    return {&scalars,
            at::stack({step(&StepScalars::factor), rate / mean, 1 - rate * of.weight_decay,
                       number(of.weight_decay), number(of.beta1), number(1 - of.beta1),
                       number(of.beta2), number(1 - of.beta2), 1 / root, number(of.epsilon),
                       number(of.momentum)})
                .to(at::kFloat)};
  }

  void update(UpdateRule rule, const UpdateRange& range, const BegunUpdate& begun) const override {
    update_arrays(range, kernels::num_slots(rule));  // checks the tensors
    const AtenScope scope;
    const at::Tensor skip =
        StepTensors(*begun.scalars, range.weights.device())(&StepScalars::skip).ne(0);
    const std::int64_t numel = range.weights.numel();
    for (std::int64_t begin = 0; begin < numel;) {
      const bool decayed = begin < range.decay_numel;
      const std::int64_t end = std::min(begin + kPiece, decayed ? range.decay_numel : numel);
      update_piece(rule, range, begun.constants, skip, decayed, begin, end - begin);
      begin = end;
    }
  }

  void move_statistic(const StatisticRange& range, const StepScalars& scalars) const override {
    const AtenScope scope;
    const at::Tensor skip = StepTensors(scalars, range.values.device())(&StepScalars::skip).ne(0);
    const at::Tensor moved =
        range.values.to(at::kDouble) * (1 - range.momentum) + range.found * range.momentum;
    range.values.copy_(at::where(skip, range.values, moved.to(at::kFloat)));
  }
};

}  // namespace

const StepPrimitives& aten_step_primitives() {
  static const AtenStepPrimitives primitives;
  return primitives;
}

}  // namespace strata
