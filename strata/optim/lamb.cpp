// A block of 1,024 elements is in the cache when its squares are summed.
#include "strata/optim/lamb.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>

#include "strata/base/errors.h"
#include "strata/device/device.h"
#include "strata/device/parallel.h"
#include "strata/optim/gradient_norm.h"
#include "strata/optim/host_weights.h"
#include "strata/optim/lamb_kernels.h"

namespace strata {
namespace {

constexpr const char* kLamb = "optim.lamb";
constexpr std::int64_t kLeastLambBlocks = kLeastElements / kFlatBlock;
constexpr std::int64_t kSumsPerBlock = 2;
static_assert(kFlatBlock <= kJoinedWeights);

void require_host_range(const UpdateRange& range) {
  STRATA_CHECK(range.weights.is_cpu(), kLamb);
  constexpr int kSlots = kernels::num_slots(kernels::UpdateRule::kAdamW);
  STRATA_CHECK(range.slots.size() >= kSlots, kLamb);
  UpdateRange of_rule = range;
  of_rule.slots.resize(kSlots);
  update_arrays(of_rule, kSlots);  // checks the tensors
  STRATA_CHECK_EQ(range.gradients.scalar_type(), at::kFloat, kLamb);
}

// `part`: elements of the layer, all of one weight.
void find_directions_of(const LambStep& step, const UpdateRange& range, std::int64_t begin,
                        FlatRange part, double* sums) {
  const std::int64_t offset = part.begin - begin;
  float* gradients = range.gradients.data_ptr<float>() + offset;
  float* means = range.slots[0].data_ptr<float>() + offset;
  float* squares = range.slots[1].data_ptr<float>() + offset;
  const std::int64_t first_block = part.begin / kFlatBlock;
  const auto find = [&](std::int64_t block) {
    const std::int64_t next = (first_block + block + 1) * kFlatBlock;
    const std::int64_t from = std::max(next - kFlatBlock, part.begin) - part.begin;
    const std::int64_t to = std::min(next, part.end) - part.begin;
    double* const block_sums = sums + kSumsPerBlock * block;
    read_weights(range, offset + from, offset + to, [&](const float* weights) {
      kernels::find_directions(step.direction, weights, gradients + from, means + from,
                               squares + from, to - from);
      block_squares(weights, block_sums, to - from);
      block_squares(gradients + from, block_sums + 1, to - from);
    });
  };
  parallel_ranges(num_blocks(part.end) - first_block, kLeastLambBlocks,
                  [&](std::int64_t first, std::int64_t last) {
                    for (std::int64_t block = first; block < last; ++block) find(block);
                  });
}

}  // namespace

LambStep lamb_step(const OptimizerOptions& options, std::int64_t update, double learning_rate,
                   double gradient_factor) {
  return {.direction = update_step(options, update, /*learning_rate=*/1, gradient_factor),
          .learning_rate = learning_rate,
          .min_coeff = options.min_coeff,
          .max_coeff = options.max_coeff};
}

at::Tensor find_directions(const LambStep& step, const WeightBlocks& blocks,
                           const UpdateRange& range, std::int64_t begin) {
  require_host_range(range);
  const FlatRange held{begin, begin + range.weights.numel()};
  const at::Tensor sums =
      at::empty({kSumsPerBlock * blocks.in(held).size()}, host_options(at::kDouble));
  auto* next = sums.mutable_data_ptr<double>();
  for (const WeightBlocks::Weight& weight : blocks.weights()) {
    const FlatRange part = weight.part_in(held);
    if (part.size() == 0) continue;
    find_directions_of(step, range, begin, part, next);
    next += kSumsPerBlock * (num_blocks(part.end) - part.begin / kFlatBlock);
  }
  STRATA_CHECK_EQ(next - sums.const_data_ptr<double>(), sums.numel(), kLamb);
  return sums;
}

std::vector<double> add_blocks(const WeightBlocks& blocks, const at::Tensor& squares, int slice) {
  STRATA_CHECK_EQ(squares.numel(), kSumsPerBlock * blocks.size(), kLamb);
  const double* each = squares.const_data_ptr<double>();
  std::vector<double> sums;
  for (const WeightBlocks::Weight& weight : blocks.weights()) {
    double of_weight = 0, of_direction = 0;
    const FlatRange counted = slice == 0 || weight.divided ? weight.blocks : FlatRange{};
    for (std::int64_t block = counted.begin; block < counted.end; ++block) {
      of_weight += each[kSumsPerBlock * block];
      of_direction += each[kSumsPerBlock * block + 1];
    }
    sums.insert(sums.end(), {of_weight, of_direction});
  }
  return sums;
}

double trust_ratio(const LambStep& step, double weight_squares, double direction_squares) {
  if (!(weight_squares > 0 && direction_squares > 0)) return 1;
  return std::clamp(std::sqrt(weight_squares) / std::sqrt(direction_squares), step.min_coeff,
                    step.max_coeff);
}

std::vector<double> trust_ratios(const LambStep& step, std::span<const double> sums) {
  std::vector<double> ratios;
  for (std::size_t i = 0; i + 1 < sums.size(); i += 2)
    ratios.push_back(trust_ratio(step, sums[i], sums[i + 1]));
  return ratios;
}

void move_by_directions(const LambStep& step, const WeightBlocks& blocks, const UpdateRange& range,
                        std::int64_t begin, std::span<const double> ratios) {
  require_host_range(range);
  STRATA_CHECK_EQ(ratios.size(), blocks.weights().size(), kLamb);
  const FlatRange held{begin, begin + range.weights.numel()};
  const float* directions = range.gradients.const_data_ptr<float>();
  for (std::size_t i = 0; i < ratios.size(); ++i) {
    const FlatRange part = blocks.weights()[i].part_in(held);
    if (part.size() == 0) continue;
    const std::int64_t offset = part.begin - begin;
    const auto rate = static_cast<float>(step.learning_rate * ratios[i]);
    const auto move = [&](float* weights, std::int64_t from, std::int64_t n) {
      kernels::move_by_directions(rate, directions + from, weights, n);
    };
    parallel_ranges(
        part.size(), kLeastElements,
        [&](std::int64_t from, std::int64_t to) {
          change_weights(range, offset + from, offset + to, move);
        },
        kColumnUnit);
    if (range.rounded.defined())
      range.rounded.narrow(0, offset, part.size())
          .copy_(range.weights.narrow(0, offset, part.size()));
  }
}

}  // namespace strata
