// Compares attention whose tokens are divided among ranks with attention of whole samples: values,
// gradients, and bits among numbers of ranks.
#include <gtest/gtest.h>

#include <random>
#include <tuple>

#include "strata/nn/ops/attention_cases_test.h"
#include "strata/nn/ops/head_exchange.h"
#include "strata/nn/primitives/primitive_choice.h"

namespace strata {
namespace {

TEST(RingAttention, EqualsTheFormulaForRandomShapes) {
  std::mt19937 random(7);
  const auto draw = [&](int from, int to) {
    return std::uniform_int_distribution<int>(from, to)(random);
  };
  for (int i = 0; i < 24; ++i) {
    const int ranks = draw(1, 6), block = draw(1, 9), blocks = draw(1, 4);
    const AttentionCase shape{.samples = draw(1, 3),
                              .length = std::int64_t{2} * ranks * block * blocks,
                              .key_heads = draw(1, 5),
                              .shared = draw(1, 3),
                              .width = 8 * draw(1, 3)};
    SCOPED_TRACE(testing::Message()
                 << ranks << " ranks, " << blocks << " blocks of " << block << ", heads "
                 << shape.key_heads << " x " << shape.shared << ", width " << shape.width);
    const AttentionData data = random_attention(shape, i);
    const AttentionResult ours = run_attention(shape, data, {.ranks = ranks, .block = block});
    const AttentionResult theirs = attention_by_formula(shape, data);
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
    const AttentionCase shape{.samples = draw(1, 3),
                              .length = std::int64_t{2} * ranks * draw(1, 9),
                              .key_heads = ranks + draw(0, 5),
                              .shared = draw(1, 3),
                              .width = 8 * draw(1, 2)};
    SCOPED_TRACE(testing::Message() << ranks << " ranks, heads " << shape.key_heads << " x "
                                    << shape.shared << ", " << shape.length << " tokens");
    const AttentionData data = random_attention(shape, i);
    const AttentionResult ours =
        run_attention(shape, data, {.ranks = ranks, .exchange = ContextExchange::kUlysses});
    const AttentionResult theirs = attention_by_formula(shape, data);
    expect_close(ours.y, theirs.y, kTolerance);
    expect_close(ours.dx, theirs.dx, kTolerance);
  }
}

using Case = std::tuple<at::ScalarType, bool, bool>;  // type, rope, norms

class ContextAttention : public testing::TestWithParam<Case> {
 protected:
  AttentionCase shape() const {
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
  const AttentionData data = random_attention(shape(), 1);
  for (const std::int64_t block : {2, 6}) {
    const AttentionResult one = run_attention(shape(), data, {.block = block});
    for (const int ranks : {2, 4, 8}) {
      SCOPED_TRACE(testing::Message() << ranks << " ranks, blocks of " << block);
      const AttentionResult many = run_attention(shape(), data, {.ranks = ranks, .block = block});
      expect_same_bits(many, one);
      expect_close(many.gains, one.gains, 1e-5);
    }
  }
}

TEST_P(ContextAttention, ExchangeOfHeadsHasTheBitsOfWholeSamples) {
  const AttentionData data = random_attention(shape(), 2);
  const AttentionResult whole = run_attention(shape(), data, {});
  for (const int ranks : {2, 3}) {
    SCOPED_TRACE(testing::Message() << ranks << " ranks");
    const AttentionResult many =
        run_attention(shape(), data, {.ranks = ranks, .exchange = ContextExchange::kUlysses});
    expect_same_bits(many, whole);
    expect_close(many.gains, whole.gains, 1e-5);
  }
}

TEST_P(ContextAttention, RingEqualsWholeSamples) {
  const AttentionData data = random_attention(shape(), 3);
  const AttentionResult whole = run_attention(shape(), data, {}),
                        ring = run_attention(shape(), data, {.ranks = 4});
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
    const AttentionCase shape{.samples = 1, .length = 8 * block, .key_heads = 3};
    const AttentionData data = random_attention(shape, 4);
    const ContextSplit split{.ranks = 4, .block = block};
    const AttentionResult fused = run_attention(shape, data, split);
    choose_primitives(DeviceKind::kCpu, PrimitivesChoice::kAten);
    const AttentionResult formula = run_attention(shape, data, split);
    const AttentionResult one = run_attention(shape, data, {.block = block});
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
