// Compares attention whose tokens are divided among ranks with attention of whole samples: values,
// gradients, and bits among numbers of ranks.
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <mutex>
#include <random>
#include <tuple>

#include "strata/comm/context_group.h"
#include "strata/comm/ranks.h"
#include "strata/nn/ops/attention.h"
#include "strata/nn/ops/head_exchange.h"
#include "strata/nn/primitives/primitive_choice.h"

namespace strata {
namespace {

struct Shape {
  std::int64_t samples = 2, length = 64, key_heads = 2, shared = 2, width = 16;
  at::ScalarType dtype = at::kFloat;
  bool rope = false, norms = false;
  std::int64_t columns() const { return (shared + 2) * key_heads * width; }
};

struct Result {
  at::Tensor y, dx;  // [B, T, ...]
  at::Tensor gains;  // [2, width]: gradients, summed over ranks
};

struct Data {
  at::Tensor qkv, dy, gains;
};

Data random_data(const Shape& s, int seed) {
  at::manual_seed(seed);
  return {at::randn({s.samples, s.length, s.columns()}).to(s.dtype),
          at::randn({s.samples, s.length, s.shared * s.key_heads * s.width}).to(s.dtype),
          at::randn({2, s.width})};
}

Attention options_of(const Shape& s, const at::Tensor& gains) {
  Attention o{.head_width = s.width, .queries_per_key = s.shared};
  if (s.rope) o.rope = RopeOptions{};
  if (!s.norms) return o;
  const auto leaf = [&](int i) {
    at::Tensor gain = gains[i].to(s.dtype).clone().requires_grad_(true);
    gain.mutable_grad() = at::zeros({s.width});
    return gain;
  };
  o.query_gain = leaf(0);
  o.key_gain = leaf(1);
  return o;
}

at::Tensor cut(const at::Tensor& x, const ContextSplit& split, int rank) {
  std::vector<at::Tensor> parts;
  for (const TokenRange& range : own_tokens(split, rank, x.size(1)))
    parts.push_back(x.narrow(1, range.first, range.count));
  return at::cat(parts, 1).contiguous();
}

// Attention of the shape on split.ranks thread ranks. Without ranks and blocks: of whole samples.
Result run(const Shape& s, const Data& data, const ContextSplit& split) {
  Result result{.y = at::zeros_like(data.dy),
                .dx = at::zeros_like(data.qkv),
                .gains = at::zeros({2, s.width})};
  std::mutex mutex;
  run_thread_ranks({.ranks = split.ranks}, [&](Group& world, MemoryAccount&) {
    const ContextGroup group(world, split);
    ForwardContext context{.training = true};
    if (split.divides()) context.context_parallel = &group;
    const Attention o = options_of(s, data.gains);
    const at::Tensor x = cut(data.qkv, split, world.rank()).requires_grad_(true);
    // Without norms attend() turns its input in place, which a leaf does not allow.
    const at::Tensor y = attend(x * 1, o, context);
    y.backward(cut(data.dy, split, world.rank()));
    const std::scoped_lock lock(mutex);
    std::int64_t row = 0;
    for (const TokenRange& range : own_tokens(split, world.rank(), s.length)) {
      const auto put = [&](const at::Tensor& whole, const at::Tensor& part) {
        whole.narrow(1, range.first, range.count).copy_(part.narrow(1, row, range.count));
      };
      put(result.y, y.detach());
      put(result.dx, x.grad());
      row += range.count;
    }
    if (!s.norms) return;
    result.gains[0].add_(o.query_gain.grad());
    result.gains[1].add_(o.key_gain.grad());
  });
  return result;
}

// By formula, in fp64, without any code of ours. Heads that share keys are neighbours.
Result by_formula(const Shape& s, const Data& data) {
  const at::Tensor x = data.qkv.to(at::kDouble).requires_grad_(true);
  const auto heads = [&](std::int64_t first, std::int64_t count) {
    return x.narrow(2, first * s.width, count * s.width)
        .reshape({s.samples, s.length, count, s.width})
        .transpose(1, 2);
  };
  const std::int64_t queries = s.shared * s.key_heads;
  const at::Tensor q = heads(0, queries);
  const at::Tensor k = heads(queries, s.key_heads).repeat_interleave(s.shared, 1);
  const at::Tensor v = heads(queries + s.key_heads, s.key_heads).repeat_interleave(s.shared, 1);
  const at::Tensor mask =
      at::full({s.length, s.length}, -std::numeric_limits<double>::infinity(), x.options()).triu(1);
  const at::Tensor scores =
      at::matmul(q, k.transpose(2, 3)) / std::sqrt(static_cast<double>(s.width)) + mask;
  const at::Tensor y = at::matmul(scores.softmax(-1), v).transpose(1, 2).flatten(2);
  y.backward(data.dy.to(at::kDouble));
  return {.y = y.detach(), .dx = x.grad()};
}

void expect_close(const at::Tensor& ours, const at::Tensor& theirs, double tolerance) {
  ASSERT_TRUE(ours.isfinite().all().item<bool>());
  const at::Tensor difference = (ours.to(at::kDouble) - theirs.to(at::kDouble)).abs();
  const double scale = std::max(1.0, theirs.abs().max().item<double>());
  EXPECT_LE(difference.max().item<double>() / scale, tolerance);
}

void expect_same_bits(const Result& a, const Result& b) {
  EXPECT_TRUE(a.y.equal(b.y));
  EXPECT_TRUE(a.dx.equal(b.dx));
}

constexpr double kTolerance = 1e-5;

TEST(RingAttention, EqualsTheFormulaForRandomShapes) {
  std::mt19937 random(7);
  const auto draw = [&](int from, int to) {
    return std::uniform_int_distribution<int>(from, to)(random);
  };
  for (int i = 0; i < 24; ++i) {
    const int ranks = draw(1, 6), block = draw(1, 9), blocks = draw(1, 4);
    const Shape shape{.samples = draw(1, 3),
                      .length = std::int64_t{2} * ranks * block * blocks,
                      .key_heads = draw(1, 5),
                      .shared = draw(1, 3),
                      .width = 8 * draw(1, 3)};
    SCOPED_TRACE(testing::Message()
                 << ranks << " ranks, " << blocks << " blocks of " << block << ", heads "
                 << shape.key_heads << " x " << shape.shared << ", width " << shape.width);
    const Data data = random_data(shape, i);
    const Result ours = run(shape, data, {.ranks = ranks, .block = block});
    const Result theirs = by_formula(shape, data);
    expect_close(ours.y, theirs.y, kTolerance);
    expect_close(ours.dx, theirs.dx, kTolerance);
  }
}

TEST(HeadExchange, EqualsTheFormulaForRandomShapes) {
  std::mt19937 random(8);
  const auto draw = [&](int from, int to) {
    return std::uniform_int_distribution<int>(from, to)(random);
  };
  for (int i = 0; i < 24; ++i) {
    const int ranks = draw(2, 5);
    const Shape shape{.samples = draw(1, 3),
                      .length = std::int64_t{2} * ranks * draw(1, 9),
                      .key_heads = ranks + draw(0, 5),
                      .shared = draw(1, 3),
                      .width = 8 * draw(1, 2)};
    SCOPED_TRACE(testing::Message() << ranks << " ranks, heads " << shape.key_heads << " x "
                                    << shape.shared << ", " << shape.length << " tokens");
    const Data data = random_data(shape, i);
    const Result ours = run(shape, data, {.ranks = ranks, .exchange = ContextExchange::kUlysses});
    const Result theirs = by_formula(shape, data);
    expect_close(ours.y, theirs.y, kTolerance);
    expect_close(ours.dx, theirs.dx, kTolerance);
  }
}

using Case = std::tuple<at::ScalarType, bool, bool>;  // type, rope, norms

class ContextAttention : public testing::TestWithParam<Case> {
 protected:
  Shape shape() const {
    const auto& [dtype, rope, norms] = GetParam();
    return {.samples = 2,
            .length = 96,
            .key_heads = 3,
            .shared = 2,
            .width = 16,
            .dtype = dtype,
            .rope = rope,
            .norms = norms};
  }
};

TEST_P(ContextAttention, RingHasTheSameBitsForEveryNumberOfRanks) {
  const Data data = random_data(shape(), 1);
  for (const std::int64_t block : {2, 6}) {
    const Result one = run(shape(), data, {.block = block});
    for (const int ranks : {2, 4, 8}) {
      SCOPED_TRACE(testing::Message() << ranks << " ranks, blocks of " << block);
      const Result many = run(shape(), data, {.ranks = ranks, .block = block});
      expect_same_bits(many, one);
      expect_close(many.gains, one.gains, 1e-5);
    }
  }
}

TEST_P(ContextAttention, ExchangeOfHeadsHasTheBitsOfWholeSamples) {
  const Data data = random_data(shape(), 2);
  const Result whole = run(shape(), data, {});
  for (const int ranks : {2, 3}) {
    SCOPED_TRACE(testing::Message() << ranks << " ranks");
    const Result many = run(shape(), data, {.ranks = ranks, .exchange = ContextExchange::kUlysses});
    expect_same_bits(many, whole);
    expect_close(many.gains, whole.gains, 1e-5);
  }
}

TEST_P(ContextAttention, RingEqualsWholeSamples) {
  const Data data = random_data(shape(), 3);
  const Result whole = run(shape(), data, {}), ring = run(shape(), data, {.ranks = 4});
  const double tolerance = shape().dtype == at::kFloat ? kTolerance : 2e-2;
  expect_close(ring.y, whole.y, tolerance);
  expect_close(ring.dx, whole.dx, tolerance);
  expect_close(ring.gains, whole.gains, tolerance);
}

INSTANTIATE_TEST_SUITE_P(, ContextAttention,
                         testing::Combine(testing::Values(at::kFloat, at::kBFloat16),
                                          testing::Bool(), testing::Bool()),
                         [](const auto& info) {
                           return std::string(c10::toString(std::get<0>(info.param))) +
                                  (std::get<1>(info.param) ? "Rope" : "") +
                                  (std::get<2>(info.param) ? "Norms" : "");
                         });

// Blocks of 300 tokens are more than one tile of the formula.
TEST(RingAttention, FormulaOfPrimitivesEqualsTheFusedKernel) {
  for (const std::int64_t block : {4, 300}) {
    const Shape shape{.samples = 1, .length = 8 * block, .key_heads = 3};
    const Data data = random_data(shape, 4);
    const ContextSplit split{.ranks = 4, .block = block};
    const Result fused = run(shape, data, split);
    choose_primitives(DeviceKind::kCpu, PrimitivesChoice::kAten);
    const Result formula = run(shape, data, split);
    const Result one = run(shape, data, {.block = block});
    choose_primitives(DeviceKind::kCpu, PrimitivesChoice::kAuto);
    expect_close(formula.y, fused.y, kTolerance);
    expect_close(formula.dx, fused.dx, kTolerance);
    expect_same_bits(formula, one);
  }
}

TEST(HeadExchange, HeadsDifferByAtMostOneAndCoverAll) {
  for (std::int64_t heads = 1; heads < 12; ++heads) {
    for (int ranks = 1; ranks <= heads; ++ranks) {
      std::int64_t next = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        const OwnHeads own = own_heads(heads, rank, ranks);
        EXPECT_EQ(own.first, next);
        EXPECT_TRUE(own.count == heads / ranks || own.count == (heads + ranks - 1) / ranks);
        next += own.count;
      }
      EXPECT_EQ(next, heads);
    }
  }
}

}  // namespace
}  // namespace strata
