// Compares ATen's primitives with the host's, on odd shapes and in every precision.
//
// Bits must be equal if no sum is reordered and no function approximated: masks, copies, sums of
// two numbers. Otherwise the tolerance is relative to the largest result: 2e-6 in fp32 (5e-6 for
// sums of gradients), one rounding in 16 bit.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <barrier>
#include <cmath>
#include <thread>
#include <vector>

#include "strata/base/errors.h"
#include "strata/base/ignored_target.h"
#include "strata/base/philox.h"
#include "strata/comm/tensor_parallel.h"
#include "strata/device/account.h"
#include "strata/device/step_scalars.h"
#include "strata/nn/aten/aten_primitives.h"
#include "strata/nn/primitives/primitive_choice.h"

namespace strata {
namespace {

class AtenPrimitives : public testing::TestWithParam<at::ScalarType> {
 protected:
  void SetUp() override { at::manual_seed(5); }

  at::ScalarType dtype() const { return GetParam(); }
  at::Tensor random(at::IntArrayRef shape) const {
    return at::randn(shape, host_options(at::kFloat)).to(dtype());
  }
  static at::Tensor floats(at::IntArrayRef shape) {
    return at::randn(shape, host_options(at::kFloat));
  }
  double tolerance() const {
    if (dtype() == at::kFloat) return 2e-6;
    return dtype() == at::kHalf ? 1e-3 : 8e-3;
  }
  void expect(const at::Tensor& ours, const at::Tensor& right, const char* what) const {
    EXPECT_EQ(ours.scalar_type(), right.scalar_type()) << what;
    expect_within(ours, right, what, tolerance());
  }
  // Sums are fp32 for all operands; those of products differ by the rounding inside libraries.
  void expect_sum(const at::Tensor& ours, const at::Tensor& right, const char* what) const {
    EXPECT_EQ(ours.scalar_type(), at::kFloat) << what;
    expect_within(ours, right, what, 5e-6);
  }
  static void expect_within(const at::Tensor& ours, const at::Tensor& right, const char* what,
                            double tolerance) {
    ASSERT_EQ(ours.sizes(), right.sizes()) << what;
    const at::Tensor expected = right.to(at::kDouble);
    const double largest = std::max(1e-3, expected.abs().max().item<double>());
    const double error = (ours.to(at::kDouble) - expected).abs().max().item<double>();
    EXPECT_TRUE(error <= tolerance * largest) << what << ": " << error << " of " << largest;
  }

  const Primitives& aten_ = aten_primitives();
  const Primitives& own_ = host_primitives();
};

TEST_P(AtenPrimitives, MultiplyAsTheHost) {
  for (const auto& [rows, in, out] : {std::array{7, 16, 24}, {130, 40, 8}, {1, 8, 33}}) {
    const at::Tensor x = random({rows, in}), w = random({out, in}), b = random({out}),
                     dy = random({rows, out});
    expect(aten_.products.product(x, w, b), own_.products.product(x, w, b), "product");
    expect(aten_.products.product(x, w, {}), own_.products.product(x, w, {}), "without bias");
    expect_within(aten_.products.logits(x, w), own_.products.logits(x, w), "logits", tolerance());
    EXPECT_TRUE(aten_.products.as_operand(dy, dtype()).is_alias_of(dy));
    at::Tensor dx = at::empty({rows, in}, x.options()), own_dx = at::empty_like(dx);
    aten_.products.input_gradient(dx, dy, w);
    own_.products.input_gradient(own_dx, dy, w);
    expect(dx, own_dx, "input gradient");
    const at::Tensor sum = floats({out, in}), columns = floats({out});
    const at::Tensor right = sum + dy.to(at::kFloat).t().mm(x.to(at::kFloat));
    aten_.products.add_weight_gradient(sum, dy, x);
    expect_sum(sum, right, "weight gradient");
    const at::Tensor own_columns = columns.clone();
    aten_.products.add_column_sums(columns, dy);
    own_.products.add_column_sums(own_columns, dy);
    expect_sum(columns, own_columns, "column sums");
  }
}

TEST_P(AtenPrimitives, NormaliseRowsAsTheHost) {
  for (const bool layer_norm : {false, true}) {
    for (const auto& shape : {std::vector<std::int64_t>{3, 5, 48}, {300, 24}, {2, 7, 3, 16}}) {
      const std::int64_t width = shape.back();
      const at::Tensor x = random(shape) + 0.5, dy = random(shape);
      const Norm norm{random({width}), layer_norm ? random({width}) : at::Tensor(), 1e-3};
      NormStatistics ours, own;
      const at::Tensor y = aten_.norms.norm(x, norm, ours);
      expect(y, own_.norms.norm(x, norm, own), "norm");
      EXPECT_EQ(ours.mean.defined(), layer_norm);
      if (layer_norm) expect_sum(ours.mean, own.mean, "mean");
      expect_sum(ours.rstd, own.rstd, "rstd");
      EXPECT_TRUE(aten_.norms.norm_again(x, norm, ours).equal(y));
      const at::Tensor dx = dy.clone(), own_dx = dy.clone();
      const NormSums sums{floats({width}), layer_norm ? floats({width}) : at::Tensor()};
      const NormSums own_sums{sums.gain.clone(), layer_norm ? sums.bias.clone() : at::Tensor()};
      aten_.norms.norm_gradient(x, dx, norm, ours, sums);
      own_.norms.norm_gradient(x, own_dx, norm, own, own_sums);
      expect(dx, own_dx, "dx");
      expect_sum(sums.gain, own_sums.gain, "gain");
      if (layer_norm) expect_sum(sums.bias, own_sums.bias, "bias");
    }
  }
}

TEST_P(AtenPrimitives, NormaliseBatchesAsTheHost) {
  if (dtype() != at::kFloat) return;  // only fp32
  for (const auto& [rows, width] : {std::pair{9, 20}, {300, 7}}) {
    const at::Tensor x = floats({rows, width}) + 2, dy = floats({rows, width});
    const Norm norm{floats({width}), floats({width}), 1e-3};
    const BatchStatistics ours = aten_.norms.batch_statistics(x),
                          own = own_.norms.batch_statistics(x);
    expect_sum(ours.mean, own.mean, "batch mean");
    expect_sum(ours.variance, own.variance, "batch variance");
    expect(aten_.norms.batch_norm(x, norm, own), own_.norms.batch_norm(x, norm, own), "batch norm");
    const at::Tensor dx = dy.clone(), own_dx = dy.clone();
    const NormSums sums{floats({width}), floats({width})};
    const NormSums own_sums{sums.gain.clone(), sums.bias.clone()};
    aten_.norms.batch_norm_gradient(x, dx, norm, own, sums);
    own_.norms.batch_norm_gradient(x, own_dx, norm, own, own_sums);
    expect(dx, own_dx, "batch norm: dx");
    expect_sum(sums.gain, own_sums.gain, "batch norm: gain");
    expect_sum(sums.bias, own_sums.bias, "batch norm: bias");
  }
}

TEST_P(AtenPrimitives, ActivateAsTheHost) {
  using enum Activation;
  for (const Activation kind : {kGelu, kSwiglu, kRelu}) {
    SCOPED_TRACE(static_cast<int>(kind));
    const std::int64_t width = 22, outputs = kind == kSwiglu ? width / 2 : width;
    const at::Tensor x = 3 * random({3, 5, width}), dy = random({3, 5, outputs});
    const at::Tensor y = aten_.elements.activate(kind, x);
    expect(y, own_.elements.activate(kind, x), "activation");
    at::Tensor again;
    const at::Tensor dx = aten_.elements.activation_gradient(kind, x, dy.clone(), &again);
    expect(dx, own_.elements.activation_gradient(kind, x, dy.clone(), nullptr), "gradient");
    EXPECT_TRUE(again.equal(y));
    EXPECT_TRUE(aten_.elements.activation_gradient(kind, x, dy.clone(), nullptr).equal(dx));
    if (kind == kRelu) EXPECT_TRUE(y.equal(own_.elements.activate(kind, x)));
  }
}

TEST_P(AtenPrimitives, AddWithTheHostsBits) {
  const at::Tensor a = random({5, 3, 7}), b = random({5, 3, 7}), c = random({5, 3, 7}),
                   bias = random({7});
  EXPECT_TRUE(aten_.elements.add(a, b).equal(own_.elements.add(a, b)));
  const at::Tensor ours = a.clone(), own = a.clone();
  aten_.elements.add_bias(ours, bias);
  own_.elements.add_bias(own, bias);
  EXPECT_TRUE(ours.equal(own));
  EXPECT_TRUE(aten_.elements.multiply_add(a, b, {}).equal(own_.elements.multiply_add(a, b, {})));
  expect(aten_.elements.multiply_add(a, b, c), own_.elements.multiply_add(a, b, c), "a * b + c");
}

TEST_P(AtenPrimitives, DropWithTheHostsBits) {
  const std::uint64_t run = mix_key(11, 0x64726f70);
  for (const auto& shape : {std::vector<std::int64_t>{3, 5, 7}, {2, 64, 16}, {1, 1}, {4, 9000}}) {
    for (const std::int64_t part : {0, 3}) {
      for (const double probability : {0.1, 0.75}) {
        const at::Tensor x = random(shape), residual = random(shape);
        MaskOfSamples mask{.mask = {.key = mix_key(run, 5),
                                    .site = 0xFFFFFFF3u,
                                    .threshold = static_cast<std::uint32_t>(
                                        std::llround(probability * 4294967296.0)),
                                    .scale = static_cast<float>(1 / (1 - probability))},
                           .first_sample = 0xFFFFFFFE,  // the number of a sample has 32 bits
                           .part = part};
        for (const at::Tensor& added : {residual, at::Tensor()}) {
          const at::Tensor own = own_.elements.dropout_add(added, x, mask);
          EXPECT_TRUE(aten_.elements.dropout_add(added, x, mask).equal(own));
          // The same key, mixed on the device.
          MaskOfSamples of_run = mask;
          StepScalars scalars;
          scalars.step = 5;
          of_run.mask.key = run;
          of_run.scalars = &scalars;
          EXPECT_TRUE(aten_.elements.dropout_add(added, x, of_run).equal(own));
          scalars.step = 6;
          if (x.numel() > 1) EXPECT_FALSE(aten_.elements.dropout_add(added, x, of_run).equal(own));
        }
      }
    }
  }
}

TEST_P(AtenPrimitives, AttendAsTheHost) {
  for (const auto& [heads, shared, width] : {std::array{4, 1, 16}, {4, 2, 8}, {3, 3, 10}}) {
    const std::int64_t length = 21;
    const at::Tensor q = random({2, length, heads, width}),
                     k = random({2, length, heads / shared, width}), v = random(k.sizes()),
                     dy = random({2, length, heads * width});
    const Attended ours = aten_.attention.attend(q, k, v), own = own_.attention.attend(q, k, v);
    expect(ours.y, own.y, "attention");
    std::vector<at::Tensor> d, own_d;
    for (const at::Tensor& x : {q, k, v}) {
      d.push_back(at::empty_like(x));
      own_d.push_back(at::empty_like(x));
    }
    aten_.attention.attend_gradient(q, k, v, ours, dy, d[0], d[1], d[2]);
    own_.attention.attend_gradient(q, k, v, own, dy, own_d[0], own_d[1], own_d[2]);
    for (const int i : {0, 1, 2})  // 16 bit: also rounding inside
      expect_within(d[i], own_d[i], "attention gradient",
                    (dtype() == at::kFloat ? 2 : 3) * tolerance());
  }
}

TEST_P(AtenPrimitives, AttendToPagesAsTheHost) {
  const std::vector<std::int32_t> pages = {3, 0, 2};
  const at::Tensor keys = random({4, 2, 3, 8}), values = random({4, 2, 3, 8});
  for (const auto& [tokens, positions] : {std::pair{1, 9}, {4, 8}, {9, 9}, {2, 2}}) {
    const at::Tensor q = random({1, tokens, 4, 8});
    const PagedText text{.pages = pages, .position = positions - tokens, .sample = 16};
    expect(aten_.attention.attend_pages(q, keys, values, text),
           own_.attention.attend_pages(q, keys, values, text), "pages");
  }
}

TEST_P(AtenPrimitives, RotateAsTheHost) {
  for (const RopeTurn turn : {RopeTurn::kForward, RopeTurn::kBack}) {
    const at::Tensor packed = random({2, 5, 3 * 8}), own = packed.clone(), table = floats({5, 8});
    const auto heads = [](const at::Tensor& x) { return x.narrow(2, 8, 16).view({2, 5, 2, 8}); };
    aten_.attention.rotate(heads(packed), table, turn);
    own_.attention.rotate(heads(own), table, turn);
    expect(packed, own, "rotated");
    EXPECT_TRUE(packed.narrow(2, 0, 8).equal(own.narrow(2, 0, 8)));
  }
}

TEST_P(AtenPrimitives, GatherAndAddRowsWithTheHostsBits) {
  const at::Tensor tokens = at::randint(20, {3, 11}, host_options(at::kLong));
  const at::Tensor weight = random({8, 6}), dy = random({3, 11, 6}), positions = random({11, 6});
  for (const std::int64_t first : {0, 5, 12}) {
    EXPECT_TRUE(
        aten_.rows.gather(tokens, weight, first).equal(own_.rows.gather(tokens, weight, first)));
    const at::Tensor sum = floats({8, 6}), own_sum = sum.clone();
    aten_.rows.add_rows(tokens, dy, sum, first);
    own_.rows.add_rows(tokens, dy, own_sum, first);
    EXPECT_TRUE(sum.equal(own_sum)) << first;
  }
  const at::Tensor x = dy.clone(), own_x = dy.clone(), sum = floats({11, 6}), own_sum = sum.clone();
  aten_.rows.add_positions(x, positions);
  own_.rows.add_positions(own_x, positions);
  EXPECT_TRUE(x.equal(own_x));
  aten_.rows.add_position_gradients(dy, sum);
  own_.rows.add_position_gradients(dy, own_sum);
  EXPECT_TRUE(sum.equal(own_sum));
}

// Connects the two threads of a test as ranks.
class TwoRanks final : public TensorParallel {
 public:
  struct Meeting {
    std::barrier<> all{2};
    std::array<at::Tensor, 2> given;
  };
  TwoRanks(Meeting& meeting, int rank) : meeting_(meeting), rank_(rank) {}
  int rank() const override { return rank_; }
  int size() const override { return 2; }
  bool sequence() const override { return false; }
  void all_reduce_sum(at::Tensor& x) const override {
    meet(x, [](const at::Tensor& a, const at::Tensor& b) { return a + b; });
  }
  void all_reduce_max(at::Tensor& x) const override {
    meet(x, [](const at::Tensor& a, const at::Tensor& b) { return at::maximum(a, b); });
  }
  at::Tensor gather_sequence(const at::Tensor& x) const override { return x; }
  at::Tensor reduce_scatter_sequence(const at::Tensor& x) const override { return x; }

 private:
  template <typename F>
  void meet(at::Tensor& x, F combine) const {
    EXPECT_TRUE(x.is_contiguous());
    meeting_.given[rank_] = x.clone();
    meeting_.all.arrive_and_wait();
    x.copy_(combine(meeting_.given[0], meeting_.given[1]));
    meeting_.all.arrive_and_wait();
  }
  Meeting& meeting_;
  int rank_;
};

// Logits of 19 classes in 24 columns, as ProductPrimitives::logits() of this type returns them.
struct LossCase {
  static constexpr std::int64_t kRows = 9, kColumns = 24, kClasses = 19;
  at::Tensor logits, targets;
  kernels::CrossEntropy what;

  explicit LossCase(double smoothing, at::ScalarType dtype)
      : logits((4 * at::randn({kRows, kColumns}, host_options(at::kFloat))).to(dtype)),
        targets(at::randint(kClasses, {kRows}, host_options(at::kLong))),
        what{.at = {.columns = kColumns, .valid = kClasses, .first = 0, .classes = kClasses},
             .ignored = kIgnoredTarget,
             .smoothing = static_cast<float>(smoothing),
             .scale = 0.25f} {
    targets[3] = kIgnoredTarget;
  }
};

TEST_P(AtenPrimitives, ComputeLossAsTheHost) {
  for (const double smoothing : {0.0, 0.1}) {
    const LossCase c(smoothing, dtype());
    at::Tensor own = c.logits.to(at::kFloat, false, true), ours = c.logits.clone(),
               kept = c.logits.clone();
    const auto fresh = [] { return at::full({1}, 7.0, host_options(at::kDouble)); };
    const at::Tensor own_loss = fresh(), loss = fresh(), loss_alone = fresh(), scaled = fresh();
    own_.losses.add_loss(own_loss, own, c.targets, c.what, nullptr, true, nullptr);
    aten_.losses.add_loss(loss, ours, c.targets, c.what, nullptr, true, nullptr);
    aten_.losses.add_loss(loss_alone, kept, c.targets, c.what, nullptr, false, nullptr);
    EXPECT_NEAR(loss.item<double>(), own_loss.item<double>(), 1e-6 * own_loss.item<double>());
    EXPECT_EQ(loss.item<double>(), loss_alone.item<double>());
    EXPECT_TRUE(kept.equal(c.logits));
    expect_within(ours, own, "gradient", tolerance());
    EXPECT_EQ(ours.narrow(1, c.kClasses, c.kColumns - c.kClasses).abs().sum().item<float>(), 0);
    EXPECT_EQ(ours[3].abs().sum().item<float>(), 0);
    // Reads the scale from the step's scalars.
    StepScalars scalars;
    scalars.loss_scale = 8;
    scalars.inverse_valid_tokens = 1.0 / 32;
    at::Tensor by_scalars = c.logits.clone();
    kernels::CrossEntropy what = c.what;
    what.scale = 77;
    aten_.losses.add_loss(scaled, by_scalars, c.targets, what, nullptr, true, &scalars);
    EXPECT_TRUE(by_scalars.equal(ours));
  }
}

TEST_P(AtenPrimitives, ComputeSameLossAmongRanksAsAlone) {
  for (const double smoothing : {0.0, 0.1}) {
    // Two ranks of 16 columns, of which the second has three classes; then of 24, where it has
    // none.
    for (const std::int64_t columns : {16, 24}) {
      const LossCase c(smoothing, at::kFloat);
      const at::Tensor alone = at::zeros({1}, host_options(at::kDouble));
      at::Tensor whole = c.logits.clone();
      aten_.losses.add_loss(alone, whole, c.targets, c.what, nullptr, true, nullptr);
      TwoRanks::Meeting meeting;
      std::array<at::Tensor, 2> gradients;
      std::array<double, 2> losses{};
      std::vector<std::thread> ranks;
      for (int rank = 0; rank < 2; ++rank) {
        gradients[rank] = at::zeros({c.kRows, columns}, host_options(at::kFloat));
        const std::int64_t first = rank * columns,
                           valid = std::clamp<std::int64_t>(c.kClasses - first, 0, columns);
        if (valid > 0) gradients[rank].narrow(1, 0, valid).copy_(c.logits.narrow(1, first, valid));
        ranks.emplace_back([&, rank, first, valid] {
          const TwoRanks group(meeting, rank);
          const at::Tensor loss = at::zeros({1}, host_options(at::kDouble));
          kernels::CrossEntropy what = c.what;
          what.at = {.columns = columns, .valid = valid, .first = first, .classes = c.kClasses};
          aten_.losses.add_loss(loss, gradients[rank], c.targets, what, &group, true, nullptr);
          losses[rank] = loss.item<double>();
        });
      }
      for (std::thread& rank : ranks) rank.join();
      EXPECT_EQ(losses[0], losses[1]);
      EXPECT_NEAR(losses[0], alone.item<double>(), 1e-6 * alone.item<double>());
      const at::Tensor both = at::cat({gradients[0], gradients[1]}, 1).narrow(1, 0, c.kClasses);
      expect_within(both, whole.narrow(1, 0, c.kClasses), "gradients of ranks", 2e-6);
    }
  }
}

TEST_P(AtenPrimitives, ComputeLogisticLossAsTheHost) {
  const at::Tensor logits = 5 * floats({50}), labels = at::rand({50}, host_options(at::kFloat));
  labels.narrow(0, 10, 5).fill_(-1);
  const at::Tensor gradient = floats({50}), own_gradient = floats({50}), by_scalars = floats({50});
  const auto fresh = [] { return at::full({1}, 3.0, host_options(at::kDouble)); };
  const at::Tensor loss = fresh(), own_loss = fresh(), alone = fresh(), scaled = fresh();
  aten_.losses.add_logistic_loss(loss, logits, labels, 2, gradient, nullptr);
  own_.losses.add_logistic_loss(own_loss, logits, labels, 2, own_gradient, nullptr);
  aten_.losses.add_logistic_loss(alone, logits, labels, 2, {}, nullptr);
  EXPECT_NEAR(loss.item<double>(), own_loss.item<double>(), 1e-13 * own_loss.item<double>());
  EXPECT_EQ(loss.item<double>(), alone.item<double>());
  expect_within(gradient, own_gradient, "gradient", 1e-7);
  StepScalars scalars;
  scalars.loss_scale = 8;
  scalars.inverse_valid_tokens = 0.25;
  aten_.losses.add_logistic_loss(scaled, logits, labels, 77, by_scalars, &scalars);
  EXPECT_TRUE(by_scalars.equal(gradient));
}

TEST_P(AtenPrimitives, InteractAsTheHost) {
  for (const bool has_first : {false, true}) {
    for (const auto& [samples, count, width] : {std::array{3, 5, 8}, {7, 2, 5}, {1, 1, 4}}) {
      const at::Tensor first = has_first ? floats({samples, width}) : at::Tensor(),
                       rest = floats({samples, count * width});
      if (count + has_first < 2) continue;  // no pair
      const at::Tensor y = aten_.interactions.pairwise_dots(first, rest, width);
      expect_within(y, own_.interactions.pairwise_dots(first, rest, width), "dots", 2e-6);
      const at::Tensor dy = floats(y.sizes());
      const auto place = [](const at::Tensor& x) {
        return x.defined() ? floats(x.sizes()) : at::Tensor();
      };
      const at::Tensor d = place(first), own_d = place(first), dr = place(rest),
                       own_dr = place(rest);
      aten_.interactions.pairwise_dots_gradient(first, rest, width, dy, d, dr);
      own_.interactions.pairwise_dots_gradient(first, rest, width, dy, own_d, own_dr);
      if (has_first) expect_within(d, own_d, "gradient of the first", 2e-6);
      expect_within(dr, own_dr, "gradient of the rest", 2e-6);
    }
  }
}

TEST_P(AtenPrimitives, ChargeOnlyResults) {
  install_accounting_allocator();
  MemoryAccount account("results");
  const at::Tensor x = random({64, 32}), weight = random({32});
  const AccountScope scope(account);
  NormStatistics statistics;
  const at::Tensor y = aten_.norms.norm(x, {weight, weight, 1e-5}, statistics);
  const at::Tensor z = aten_.elements.activate(Activation::kGelu, x);
  EXPECT_EQ(account.peak_bytes(), account.current_bytes());
  EXPECT_GE(account.current_bytes(), static_cast<std::int64_t>(2 * x.nbytes() + 2 * 64 * 4));
}

INSTANTIATE_TEST_SUITE_P(Precisions, AtenPrimitives,
                         testing::Values(at::kFloat, at::kBFloat16, at::kHalf),
                         [](const auto& info) { return c10::toString(info.param); });

TEST(PrimitiveChoice, SelectsTheImplementationForItsKindOfDevice) {
  const at::Tensor x = at::zeros({1}, host_options(at::kFloat));
  EXPECT_EQ(&primitives(x), &host_primitives());
  choose_primitives(DeviceKind::kCpu, PrimitivesChoice::kAten);
  EXPECT_EQ(&primitives(x), &aten_primitives());
  EXPECT_EQ(chosen_primitives(DeviceKind::kCuda), PrimitivesChoice::kAten);
  choose_primitives(DeviceKind::kCuda, PrimitivesChoice::kOwn);
  EXPECT_EQ(&primitives(x), &aten_primitives());
  choose_primitives(DeviceKind::kCuda, PrimitivesChoice::kAuto);
  EXPECT_EQ(chosen_primitives(DeviceKind::kCuda), PrimitivesChoice::kAten);
  choose_primitives(DeviceKind::kCpu, PrimitivesChoice::kAuto);
  EXPECT_EQ(&primitives(x), &host_primitives());
}

}  // namespace
}  // namespace strata
