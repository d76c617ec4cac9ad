// Compares the CUDA primitives with the host's and with formulas in fp64, on odd shapes, in every
// precision; new tensors begin as NaNs.
//
// nn_simt_test runs them on a host, with the host form of the kernels and with formulas in fp64 as
// libraries. It tests the code around these: shapes, strides, workspaces, order, what is added and
// what is overwritten. nn_cuda_test runs the same on a GPU with its libraries.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <barrier>
#include <cmath>
#include <limits>
#include <thread>
#include <vector>

#include "strata/base/errors.h"
#include "strata/base/philox.h"
#include "strata/comm/tensor_parallel.h"
#include "strata/device/simt/simt_machine.h"
#include "strata/device/step_scalars.h"
#include "strata/nn/cuda/cuda_primitives.h"
#include "strata/nn/cuda/formula_libraries_test.h"

namespace strata {
namespace {

// With the host form of the kernels, the device's memory is the host's.
bool on_gpu() { return simt::on_gpu(); }

const Primitives& tried_primitives() {
  static const FormulaLibraries libraries;
  static const CudaPrimitives on_host(libraries);
  return on_gpu() ? cuda_primitives() : on_host.all();
}

at::Device tried_device() { return on_gpu() ? at::Device(at::kCUDA, 0) : at::Device(at::kCPU); }

// A copy in the device's memory.
class DeviceScalars {
 public:
  explicit DeviceScalars(const StepScalars& scalars)
      : bytes_(at::from_blob(const_cast<StepScalars*>(&scalars), {sizeof(StepScalars)}, at::kByte)
                   .clone()
                   .to(tried_device())) {}
  const StepScalars* pointer() const {
    return static_cast<const StepScalars*>(bytes_.const_data_ptr());
  }

 private:
  at::Tensor bytes_;
};

// Fills new tensors with NaNs or large integers.
class PoisonedTensors {
 public:
  PoisonedTensors() { set(true); }
  ~PoisonedTensors() { set(false); }

 private:
  static void set(bool on) {
    at::globalContext().setDeterministicAlgorithms(on, false);
    at::globalContext().setDeterministicFillUninitializedMemory(on);
  }
};

class CudaPrimitivesTest : public testing::TestWithParam<at::ScalarType> {
 protected:
  void SetUp() override { at::manual_seed(3); }

  static at::Tensor on_device(const at::Tensor& x) {
    return x.defined() ? x.to(tried_device()) : x;
  }
  /// Returns a copy for the host's primitives.
  static at::Tensor for_host(const at::Tensor& x) {
    return x.defined() ? x.to(at::kCPU, /*non_blocking=*/false, /*copy=*/true) : x;
  }
  static at::Tensor floats(at::IntArrayRef shape) { return on_device(at::randn(shape)); }

  at::ScalarType dtype() const { return GetParam(); }
  at::Tensor random(at::IntArrayRef shape) const { return on_device(at::randn(shape).to(dtype())); }
  double tolerance() const {
    if (dtype() == at::kFloat) return 2e-6;
    return dtype() == at::kHalf ? 1e-3 : 8e-3;
  }
  void expect(const at::Tensor& ours, const at::Tensor& right, const char* what) const {
    expect_within(ours, right, what, tolerance());
  }
  // Sums are fp32 for all operands.
  void expect_sum(const at::Tensor& ours, const at::Tensor& right, const char* what) const {
    EXPECT_EQ(ours.scalar_type(), at::kFloat) << what;
    expect_within(ours, right, what, 5e-6);
  }
  static void expect_within(const at::Tensor& ours, const at::Tensor& right, const char* what,
                            double tolerance) {
    ASSERT_EQ(ours.sizes(), right.sizes()) << what;
    const double largest = std::max(1e-3, fp64(right).abs().max().item<double>());
    const double error = (fp64(ours) - fp64(right)).abs().max().item<double>();
    EXPECT_TRUE(error <= tolerance * largest) << what << ": " << error << " of " << largest;
  }

  const Primitives& compute_ = tried_primitives();
  const Primitives& host_ = host_primitives();
  PoisonedTensors poisoned_;
};

TEST_P(CudaPrimitivesTest, ComputeProductsAndGradients) {
  for (const auto& [rows, in, out] : {std::array{7, 16, 24}, {130, 40, 8}, {1, 8, 33}}) {
    const at::Tensor x = random({rows, in}), w = random({out, in}), b = random({out}),
                     dy = random({rows, out});
    expect(compute_.products.product(x, w, b), fp64(x).mm(fp64(w).t()) + fp64(b), "product");
    expect(compute_.products.product(x, w, {}), fp64(x).mm(fp64(w).t()), "product without bias");
    EXPECT_EQ(compute_.products.logits(x, w).scalar_type(), dtype());
    expect(compute_.products.logits(x, w), fp64(x).mm(fp64(w).t()), "logits");
    EXPECT_TRUE(compute_.products.as_operand(dy, dtype()).is_alias_of(dy));
    at::Tensor dx = at::empty({rows, in}, x.options());
    compute_.products.input_gradient(dx, dy, w);
    expect(dx, fp64(dy).mm(fp64(w)), "input gradient");
    const at::Tensor before = floats({out, in}), sum = before.clone();
    compute_.products.add_weight_gradient(sum, dy, x);
    expect_sum(sum, fp64(before) + fp64(dy).t().mm(fp64(x)), "weight gradient");
    const at::Tensor first = floats({out}), columns = first.clone();
    compute_.products.add_column_sums(columns, dy);
    expect_sum(columns, fp64(first) + fp64(dy).sum({0}), "column sums");
  }
}

TEST_P(CudaPrimitivesTest, Normalise) {
  for (const bool layer_norm : {false, true}) {
    for (const auto& shape : {std::vector<std::int64_t>{3, 5, 48}, {300, 24}, {2, 7, 3, 16}}) {
      const std::int64_t width = shape.back();
      const at::Tensor x = random(shape) + 0.5, dy = random(shape);
      const Norm norm{random({width}), layer_norm ? random({width}) : at::Tensor(), 1e-3};
      const at::Tensor wide = fp64(x), centred = layer_norm ? wide - wide.mean(-1, true) : wide;
      const at::Tensor rstd = (centred.square().mean(-1, true) + 1e-3).rsqrt();
      at::Tensor right = centred * rstd * fp64(norm.gain);
      if (layer_norm) right = right + fp64(norm.bias);
      NormStatistics statistics, of_host;
      expect(compute_.norms.norm(x, norm, statistics), right, "norm");
      EXPECT_EQ(statistics.mean.defined(), layer_norm);
      expect_sum(statistics.rstd, rstd.reshape({-1}), "rstd");
      expect(compute_.norms.norm_again(x, norm, statistics), right, "norm again");

      const at::Tensor host_x = for_host(x);
      const Norm host_norm{for_host(norm.gain), for_host(norm.bias), norm.epsilon};
      host_.norms.norm(host_x, host_norm, of_host);
      const at::Tensor dx = dy.clone(), host_dx = for_host(dy);
      const NormSums sums{floats({width}), layer_norm ? floats({width}) : at::Tensor()};
      const NormSums host_sums{for_host(sums.gain), for_host(sums.bias)};
      compute_.norms.norm_gradient(x, dx, norm, statistics, sums);
      host_.norms.norm_gradient(host_x, host_dx, host_norm, of_host, host_sums);
      expect(dx, host_dx, "norm: dx");
      expect_sum(sums.gain, host_sums.gain, "norm: gain");
      if (layer_norm) expect_sum(sums.bias, host_sums.bias, "norm: bias");
    }
  }
}

TEST_P(CudaPrimitivesTest, RefuseWeightsOfANormInAnotherType) {
  NormStatistics statistics;
  const at::ScalarType other = dtype() == at::kFloat ? at::kHalf : at::kFloat;
  EXPECT_THROW(compute_.norms.norm(random({4, 8}), {on_device(at::ones({8}, other))}, statistics),
               InternalError);
}

TEST_P(CudaPrimitivesTest, NormaliseBatches) {
  if (dtype() != at::kFloat) return;  // only fp32
  for (const auto& [rows, width] : {std::pair{9, 20}, {300, 7}}) {
    const at::Tensor x = floats({rows, width}) + 2, dy = floats({rows, width});
    const Norm norm{floats({width}), floats({width}), 1e-3};
    const BatchStatistics ours = compute_.norms.batch_statistics(x);
    expect_sum(ours.mean, fp64(x).mean(0), "batch mean");
    expect_sum(ours.variance, fp64(x).var(0, /*unbiased=*/false), "batch variance");
    const at::Tensor right =
        (fp64(x) - fp64(x).mean(0)) / (fp64(x).var(0, false) + 1e-3).sqrt() * fp64(norm.gain) +
        fp64(norm.bias);
    expect(compute_.norms.batch_norm(x, norm, ours), right, "batch norm");
    const at::Tensor dx = dy.clone(), host_dx = for_host(dy);
    const NormSums sums{floats({width}), floats({width})};
    const NormSums host_sums{for_host(sums.gain), for_host(sums.bias)};
    compute_.norms.batch_norm_gradient(x, dx, norm, ours, sums);
    host_.norms.batch_norm_gradient(for_host(x), host_dx,
                                    {for_host(norm.gain), for_host(norm.bias), norm.epsilon},
                                    {for_host(ours.mean), for_host(ours.variance)}, host_sums);
    expect(dx, host_dx, "batch norm: dx");
    expect_sum(sums.gain, host_sums.gain, "batch norm: gain");
    expect_sum(sums.bias, host_sums.bias, "batch norm: bias");
  }
}

TEST_P(CudaPrimitivesTest, Activate) {
  using enum Activation;
  for (const Activation kind : {kGelu, kSwiglu, kRelu}) {
    for (const bool again : {false, true}) {
      SCOPED_TRACE(testing::Message() << static_cast<int>(kind) << again);
      const std::int64_t width = 22, outputs = kind == kSwiglu ? width / 2 : width;
      const at::Tensor x = random({3, 5, width}), dy = random({3, 5, outputs});
      const at::Tensor y = compute_.elements.activate(kind, x);
      expect(y, host_.elements.activate(kind, for_host(x)), "activation");
      at::Tensor made, host_made;
      const at::Tensor ours =
          compute_.elements.activation_gradient(kind, x, dy.clone(), again ? &made : nullptr);
      const at::Tensor theirs = host_.elements.activation_gradient(kind, for_host(x), for_host(dy),
                                                                   again ? &host_made : nullptr);
      expect(ours, theirs, "activation: dx");
      if (again) expect(made, fp64(y), "activation again");
    }
  }
  const at::Tensor a = random({4, 9}), b = random({4, 9}), c = random({4, 9});
  expect(compute_.elements.add(a, b), fp64(a) + fp64(b), "add");
  expect(compute_.elements.multiply_add(a, b, c), fp64(a) * fp64(b) + fp64(c), "multiply_add");
  expect(compute_.elements.multiply_add(a, b, {}), fp64(a) * fp64(b), "multiply");
  const at::Tensor x = random({3, 5, 9}), bias = random({9}), sum = x.clone();
  compute_.elements.add_bias(sum, bias);
  expect(sum, fp64(x) + fp64(bias), "bias");
}

// The bits are the host's: an element is either kept or not.
TEST_P(CudaPrimitivesTest, DropSameElementsAsHostWithAndWithoutScalars) {
  const std::uint64_t run = 77;
  StepScalars step;
  step.step = 5;
  step.first_sample = 1000;  // a mask's first sample is already the mini-batch's
  const DeviceScalars scalars(step);
  const auto mask = [&](std::uint64_t key, const StepScalars* in) {
    return MaskOfSamples{
        {.key = key, .site = 9, .threshold = 1u << 30, .scale = 1 / 0.75f}, 3, 2, in};
  };
  const at::Tensor x = random({4, 6, 10}), residual = random({4, 6, 10});
  for (const at::Tensor& added : {residual, at::Tensor()}) {
    const at::Tensor right =
        host_.elements.dropout_add(for_host(added), for_host(x), mask(mix_key(run, 5), nullptr));
    EXPECT_TRUE(at::equal(
        compute_.elements.dropout_add(added, x, mask(mix_key(run, 5), nullptr)).cpu(), right));
    EXPECT_TRUE(at::equal(
        compute_.elements.dropout_add(added, x, mask(run, scalars.pointer())).cpu(), right));
  }
}

TEST_P(CudaPrimitivesTest, AttendSharedKeysAndNarrowHeads) {
  constexpr std::int64_t kSamples = 2, kLength = 11;
  for (const auto& [keys, shared, width] :
       {std::array<std::int64_t, 3>{3, 1, 16}, {2, 3, 8}, {1, 2, 6}}) {
    SCOPED_TRACE(testing::Message() << keys << " " << shared << " " << width);
    const std::int64_t heads = keys * shared, queries = heads * width, ks = keys * width;
    const auto views = [&, keys = keys, width = width](const at::Tensor& packed) {
      const auto cut = [&](std::int64_t first, std::int64_t count) {
        return packed.narrow(2, first, count * width).view({kSamples, kLength, count, width});
      };
      return std::vector{cut(0, heads), cut(queries, keys), cut(queries + ks, keys)};
    };
    const at::Tensor packed = random({kSamples, kLength, queries + 2 * ks});
    const auto qkv = views(packed);
    const Attended ours = compute_.attention.attend(qkv[0], qkv[1], qkv[2]);
    const auto heads_of = [&, shared = shared](int part) {
      const at::Tensor x = fp64(qkv[part]).transpose(1, 2);
      return part == 0 ? x : x.repeat_interleave(shared, 1);
    };
    const double scale = 1 / std::sqrt(static_cast<double>(width));
    const at::Tensor scores = causal_scores(heads_of(0), heads_of(1), scale);
    const at::Tensor right = at::matmul(scores.softmax(3), heads_of(2))
                                 .transpose(1, 2)
                                 .reshape({kSamples, kLength, queries});
    expect(ours.y, right, "attention");
    EXPECT_TRUE(ours.y.is_contiguous());

    const at::Tensor dy = random({kSamples, kLength, queries});
    const at::Tensor gradients = at::empty_like(packed),
                     host_gradients = at::empty_like(packed.cpu());
    const auto d = views(gradients), host_d = views(host_gradients);
    compute_.attention.attend_gradient(qkv[0], qkv[1], qkv[2], ours, dy, d[0], d[1], d[2]);
    const auto host_qkv = views(for_host(packed));
    const Attended theirs = host_.attention.attend(host_qkv[0], host_qkv[1], host_qkv[2]);
    host_.attention.attend_gradient(host_qkv[0], host_qkv[1], host_qkv[2], theirs, for_host(dy),
                                    host_d[0], host_d[1], host_d[2]);
    const char* names[] = {"dq", "dk", "dv"};
    for (int part = 0; part < 3; ++part)
      expect_within(d[part], host_d[part], names[part], 3 * tolerance());
  }
}

TEST_P(CudaPrimitivesTest, AttendToPages) {
  const std::vector<std::int32_t> pages = {3, 0, 2};
  for (const auto& [tokens, position, shared] :
       {std::array<std::int64_t, 3>{1, 6, 2}, {4, 0, 1}, {3, 5, 2}}) {
    const std::int64_t keys = 2, heads = keys * shared, width = 16;
    const at::Tensor q = random({1, tokens, heads, width}), k = random({4, keys, 3, width}),
                     v = random({4, keys, 3, width});
    const PagedText text{.pages = pages, .position = position, .sample = 16};
    expect_within(compute_.attention.attend_pages(q, k, v, text),
                  host_.attention.attend_pages(for_host(q), for_host(k), for_host(v), text),
                  "pages", 2 * tolerance());
  }
}

TEST_P(CudaPrimitivesTest, RotateViewsOfPackedHeads) {
  const std::int64_t heads = 3, width = 8, length = 5;
  const at::Tensor packed = random({2, length, 40}), theirs = for_host(packed);
  const at::Tensor table = floats({length + 2, width}).narrow(0, 2, length);
  const auto view = [&](const at::Tensor& x) {
    return x.narrow(2, 8, heads * width).view({2, length, heads, width});
  };
  for (const RopeTurn turn : {RopeTurn::kForward, RopeTurn::kBack}) {
    compute_.attention.rotate(view(packed), table, turn);
    host_.attention.rotate(view(theirs), for_host(table), turn);
    EXPECT_TRUE(at::equal(packed.cpu(), theirs));
  }
}

TEST_P(CudaPrimitivesTest, GatherAndAddRowsOfAPartOfTheVocabulary) {
  for (const std::int64_t first : {0, 10}) {
    const at::Tensor tokens = on_device(at::randint(30, {4, 13}, at::kLong)),
                     weight = random({20, 12}), dy = random({4, 13, 12});
    EXPECT_TRUE(at::equal(compute_.rows.gather(tokens, weight, first).cpu(),
                          host_.rows.gather(for_host(tokens), for_host(weight), first)));
    const at::Tensor sum = floats({20, 12}), theirs = for_host(sum);
    compute_.rows.add_rows(tokens, dy, sum, first);
    host_.rows.add_rows(for_host(tokens), for_host(dy), theirs, first);
    EXPECT_TRUE(at::equal(sum.cpu(), theirs));  // both add in ascending positions
  }
  const at::Tensor x = random({3, 5, 6}), positions = random({5, 6}), y = x.clone();
  compute_.rows.add_positions(y, positions);
  expect(y, fp64(x) + fp64(positions), "positions");
  const at::Tensor before = floats({5, 6}), sum = before.clone();
  compute_.rows.add_position_gradients(x, sum);
  expect_sum(sum, fp64(before) + fp64(x).sum(0), "position gradients");
}

kernels::CrossEntropy classes(std::int64_t columns, std::int64_t first, std::int64_t all,
                              float smoothing) {
  return {.at = {.columns = columns,
                 .valid = std::clamp<std::int64_t>(all - first, 0, columns),
                 .first = first,
                 .classes = all},
          .ignored = -100,
          .smoothing = smoothing,
          .scale = 0.25f};
}

struct LossOf {
  double loss;
  at::Tensor gradient;
};

// In fp64, over the classes only.
LossOf cross_entropy_of(const at::Tensor& logits, const at::Tensor& targets, std::int64_t all,
                        double smoothing, double scale) {
  const at::Tensor z = fp64(logits).narrow(1, 0, all).clone().requires_grad_(true);
  const at::AutoGradMode grad(true);
  const at::Tensor loss =
      at::cross_entropy_loss(z, targets.cpu(), {}, at::Reduction::Sum, -100, smoothing);
  loss.backward();
  return {loss.item<double>(), at::constant_pad_nd(z.grad() * scale, {0, logits.size(1) - all})};
}

TEST_P(CudaPrimitivesTest, ComputeLossAndGradient) {
  constexpr std::int64_t kRows = 19, kColumns = 24, kClasses = 21;
  StepScalars step;
  step.loss_scale = 8;
  step.inverse_valid_tokens = 1.0 / 16;
  const DeviceScalars scalars(step);
  const at::Tensor logits = random({kRows, kColumns}) * 3;
  at::Tensor targets = on_device(at::randint(kClasses, {kRows + 4}, at::kLong)).narrow(0, 4, kRows);
  targets[2] = -100;
  for (const float smoothing : {0.0f, 0.1f}) {
    for (const StepScalars* in : {static_cast<const StepScalars*>(nullptr), scalars.pointer()}) {
      const LossOf right = cross_entropy_of(logits, targets, kClasses, smoothing, in ? 0.5 : 0.25);
      const at::Tensor loss = on_device(at::full({1}, 7.0, at::kDouble));
      at::Tensor gradient = logits.clone(), kept = logits.clone();
      const kernels::CrossEntropy what = classes(kColumns, 0, kClasses, smoothing);
      compute_.losses.add_loss(loss, gradient, targets, what, nullptr, /*gradient=*/true, in);
      EXPECT_NEAR(loss.item<double>(), 7 + right.loss, 1e-4 * right.loss);
      expect(gradient, right.gradient, "loss gradient");
      compute_.losses.add_loss(loss, kept, targets, what, nullptr, /*gradient=*/false, in);
      EXPECT_NEAR(loss.item<double>(), 7 + 2 * right.loss, 1e-4 * right.loss);
      EXPECT_TRUE(at::equal(kept, logits));
    }
  }
}

// Two threads that add up their tensors.
class TwoRanks {
 public:
  class Rank final : public TensorParallel {
   public:
    Rank(TwoRanks& ranks, int rank) : ranks_(ranks), rank_(rank) {}
    int rank() const override { return rank_; }
    int size() const override { return 2; }
    bool sequence() const override { return false; }
    void all_reduce_sum(at::Tensor& x) const override {
      exchange(x, [](const at::Tensor& a, const at::Tensor& b) { return a + b; });
    }
    void all_reduce_max(at::Tensor& x) const override {
      exchange(x, [](const at::Tensor& a, const at::Tensor& b) { return at::maximum(a, b); });
    }
    at::Tensor gather_sequence(const at::Tensor& x) const override { return x; }
    at::Tensor reduce_scatter_sequence(const at::Tensor& x) const override { return x; }

   private:
    template <typename F>
    void exchange(at::Tensor& x, F combine) const {
      ranks_.parts_[rank_] = x.clone();
      ranks_.meet_.arrive_and_wait();
      x.copy_(combine(ranks_.parts_[0], ranks_.parts_[1]));
      ranks_.meet_.arrive_and_wait();
    }
    TwoRanks& ranks_;
    int rank_;
  };

 private:
  at::Tensor parts_[2];
  std::barrier<> meet_{2};
};

TEST_P(CudaPrimitivesTest, ComputeLossOfDividedClasses) {
  constexpr std::int64_t kRows = 11, kColumns = 16;  // per rank
  const at::Tensor logits = random({kRows, 2 * kColumns}) * 3;
  for (const std::int64_t all : {29, 13}) {  // with 13 the second rank has none
    at::Tensor targets = on_device(at::randint(all, {kRows}, at::kLong));
    targets[3] = -100;
    for (const float smoothing : {0.0f, 0.1f}) {
      SCOPED_TRACE(testing::Message() << all << " classes, smoothing " << smoothing);
      const LossOf right = cross_entropy_of(logits, targets, all, smoothing, 0.25);
      TwoRanks ranks;
      at::Tensor gradients[2];
      double losses[2];
      const auto run = [&](int rank) {
        const TwoRanks::Rank group(ranks, rank);
        const at::Tensor loss = on_device(at::zeros({1}, at::kDouble));
        gradients[rank] = logits.narrow(1, rank * kColumns, kColumns).contiguous();
        compute_.losses.add_loss(loss, gradients[rank], targets,
                                 classes(kColumns, rank * kColumns, all, smoothing), &group, true,
                                 nullptr);
        losses[rank] = loss.item<double>();
      };
      std::thread second(run, 1);
      run(0);
      second.join();
      for (const double loss : losses) EXPECT_NEAR(loss, right.loss, 1e-4 * right.loss);
      expect(at::cat({gradients[0], gradients[1]}, 1), right.gradient, "divided gradient");
    }
  }
}

TEST_P(CudaPrimitivesTest, ComputeLogisticLoss) {
  if (dtype() != at::kFloat) return;  // only fp32
  StepScalars step;
  step.loss_scale = 4;
  step.inverse_valid_tokens = 0.5;
  const DeviceScalars scalars(step);
  const at::Tensor logits = floats({33}) * 4, labels = on_device(at::rand({33}));
  labels[5] = -100;
  const at::Tensor theirs = at::zeros({1}, at::kDouble), host_gradient = at::empty({33});
  host_.losses.add_logistic_loss(theirs, for_host(logits), for_host(labels), 2, host_gradient,
                                 nullptr);
  for (const StepScalars* in : {static_cast<const StepScalars*>(nullptr), scalars.pointer()}) {
    const at::Tensor loss = on_device(at::full({1}, 3.0, at::kDouble)),
                     gradient = at::empty_like(logits);
    compute_.losses.add_logistic_loss(loss, logits, labels, in ? 77 : 2, gradient, in);
    EXPECT_NEAR(loss.item<double>(), 3 + theirs.item<double>(), 1e-9);
    expect(gradient, host_gradient, "logistic gradient");
  }
  const at::Tensor loss = on_device(at::zeros({1}, at::kDouble));
  compute_.losses.add_logistic_loss(loss, logits, labels, 2, {}, nullptr);
  EXPECT_NEAR(loss.item<double>(), theirs.item<double>(), 1e-9);
}

TEST_P(CudaPrimitivesTest, ComputeProductsOfVectorPairs) {
  if (dtype() != at::kFloat) return;  // only fp32
  const std::int64_t width = 12, samples = 7;
  for (const bool has_first : {false, true}) {
    const at::Tensor first = has_first ? floats({samples, width}) : at::Tensor();
    const at::Tensor rest = floats({samples, 4 * width});
    const at::Tensor y = compute_.interactions.pairwise_dots(first, rest, width);
    expect(y, host_.interactions.pairwise_dots(for_host(first), for_host(rest), width), "dots");
    const at::Tensor dy = at::randn_like(y), drest = at::empty_like(rest),
                     host_drest = at::empty_like(for_host(rest));
    const at::Tensor dfirst = has_first ? at::empty_like(first) : first,
                     host_dfirst = for_host(dfirst);
    compute_.interactions.pairwise_dots_gradient(first, rest, width, dy, dfirst, drest);
    host_.interactions.pairwise_dots_gradient(for_host(first), for_host(rest), width, for_host(dy),
                                              host_dfirst, host_drest);
    expect(drest, host_drest, "dots: rest");
    if (has_first) expect(dfirst, host_dfirst, "dots: first");
  }
}

// Kernels require contiguous rows: a view with gaps must not reach them.
TEST_P(CudaPrimitivesTest, RefuseTensorsWithGaps) {
  const at::Tensor gaps = random({4, 16}).narrow(1, 0, 8);
  EXPECT_THROW(compute_.elements.activate(Activation::kGelu, gaps), InternalError);
  EXPECT_THROW(compute_.elements.add(gaps, gaps), InternalError);
}

INSTANTIATE_TEST_SUITE_P(Precisions, CudaPrimitivesTest,
                         testing::Values(at::kFloat, at::kBFloat16, at::kHalf),
                         [](const auto& info) { return c10::toString(info.param); });

TEST(CudaPrimitives, AreRefusedWithoutCuda) {
  EXPECT_EQ(&primitives(at::zeros({1})), &host_primitives());
  if (on_gpu()) GTEST_SKIP() << "this one has them";
  EXPECT_THROW(primitives(at::zeros({1}, at::kMeta)), UserError);
}

}  // namespace
}  // namespace strata
