// Compares attention with a pattern to dense attention with a mask, whose pairs are listed here by
// the definition of each pattern; and bits among threads, ranks and decoding.
#include <ATen/ops/stack.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "strata/base/every_target_test.h"
#include "strata/nn/ops/attention_cases_test.h"
#include "strata/nn/primitives/primitive_choice.h"
#include "strata/nn/primitives/primitives.h"

namespace strata {
namespace {

struct Named {
  const char* name;
  AttentionPattern pattern;
};
void PrintTo(const Named& named, std::ostream* out) { *out << named.name; }

std::vector<Named> all_patterns() {
  using enum PatternKind;
  return {
      {"Sliding", {.kind = kSliding, .block = 16, .window = 37}},
      {"SlidingOneToken", {.kind = kSliding, .block = 16, .window = 1}},
      {"SlidingLong", {.kind = kSliding, .block = 32, .window = 1000}},
      {"Fixed", {.kind = kFixed, .block = 16, .window = 64}},
      {"FixedByHead", {.kind = kFixed, .block = 16, .window = 64, .global_blocks = 1, .forms = 3}},
      {"Variable",
       {.kind = kVariable,
        .block = 16,
        .windows = {{16}, {48}, {32}},
        .globals = {{1}, {4}},
        .random_blocks = 1,
        .forms = 2}},
      {"BigBird", {.kind = kBigBird, .block = 16, .window = 32, .random_blocks = 2, .forms = 4}},
      {"Longformer", {.kind = kLongformer, .block = 16, .window = 32, .globals = {{0}, {5}}}},
  };
}

// Whether the form's token i attends to token j by the definition of the pattern. Random blocks
// have no definition: those of the list count.
bool attends(const AttentionPattern& p, std::int64_t form, std::int64_t i, std::int64_t j) {
  if (j > i) return false;
  const std::int64_t query = i / p.block, key = j / p.block, window = p.window / p.block;
  const auto is_global = [&](std::int64_t block) {
    return std::any_of(p.globals.begin(), p.globals.end(),
                       [&](const BlockIndex& global) { return global.index == block; });
  };
  const auto is_listed = [&] {
    std::vector<std::int32_t> blocks;
    p.key_blocks(form, query, blocks);
    return std::count(blocks.begin(), blocks.end(), key) > 0;
  };
  switch (p.kind) {
    case PatternKind::kDense:
      return true;
    case PatternKind::kSliding:
      return i - j < p.window;
    case PatternKind::kFixed: {
      const std::int64_t from_end = window - 1 - key % window;  // 0: the last block of a window
      return query / window == key / window || from_end / p.global_blocks == form;
    }
    case PatternKind::kVariable: {
      const auto window_of = [&](std::int64_t token) {
        std::size_t number = 0;
        while (true) {
          token -= p.windows[std::min(number, p.windows.size() - 1)].tokens;
          if (token < 0) return number;
          ++number;
        }
      };
      return window_of(i) == window_of(j) || is_global(key) || is_listed();
    }
    case PatternKind::kBigBird:
      return query - key < window || key < p.global_blocks || is_listed();
    case PatternKind::kLongformer:
      return query - key < window || is_global(key) || is_global(query);
  }
  return false;
}

at::Tensor hidden_pairs(const AttentionPattern& p, std::int64_t heads, std::int64_t length) {
  std::vector<at::Tensor> masks;
  for (std::int64_t head = 0; head < heads; ++head) {
    const at::Tensor mask = at::zeros({length, length}, at::kBool);
    auto at = mask.accessor<bool, 2>();
    for (std::int64_t i = 0; i < length; ++i)
      for (std::int64_t j = 0; j < length; ++j) at[i][j] = !attends(p, head % p.forms, i, j);
    masks.push_back(mask);
  }
  return at::stack(masks);
}

class SparseAttention : public testing::TestWithParam<Named> {
 protected:
  const AttentionPattern& pattern() const { return GetParam().pattern; }

  void expect_formula(const AttentionCase& shape, int seed, double tolerance) const {
    SCOPED_TRACE(testing::Message() << "heads " << shape.key_heads << " x " << shape.shared << ", "
                                    << shape.length << " tokens, width " << shape.width);
    const AttentionData data = random_attention(shape, seed);
    const AttentionResult ours = run_attention(shape, data, {});
    const AttentionResult theirs = attention_by_formula(
        shape, data, hidden_pairs(pattern(), shape.key_heads * shape.shared, shape.length));
    expect_close(ours.y, theirs.y, tolerance);
    expect_close(ours.dx, theirs.dx, tolerance);
  }

  // The shape whose bits tests compare.
  AttentionCase bits_case(at::ScalarType dtype) const {
    return {.samples = 2,
            .length = 200,
            .key_heads = 3,
            .shared = 2,
            .width = 24,
            .dtype = dtype,
            .rope = true,
            .pattern = &pattern()};
  }
};

TEST_P(SparseAttention, EqualsMaskedDenseAttentionForRandomShapes) {
  std::mt19937 random(3);
  const auto draw = [&](int from, int to) {
    return std::uniform_int_distribution<int>(from, to)(random);
  };
  for (int i = 0; i < 6; ++i)
    expect_formula({.samples = draw(1, 2),
                    .length = draw(1, 260),
                    .key_heads = draw(1, 4),
                    .shared = draw(1, 3),
                    .width = 2 * draw(1, 40),
                    .pattern = &pattern()},
                   i, kTolerance);
}

TEST_P(SparseAttention, EqualsMaskedDenseAttentionWithEveryInstructionSet) {
  on_every_target([&] {
    expect_formula(
        {.samples = 1, .length = 150, .key_heads = 2, .width = 40, .pattern = &pattern()}, 11,
        kTolerance);
  });
}

TEST_P(SparseAttention, LongBlocksEqualMaskedDenseAttention) {
  AttentionPattern longer = pattern();
  const std::int64_t times = 128 / longer.block;
  longer.block *= times;
  longer.window *= times;
  for (WindowLength& window : longer.windows) window.tokens *= times;
  const AttentionCase shape{
      .samples = 1, .length = 1000, .key_heads = 1, .shared = 3, .width = 80, .pattern = &longer};
  const AttentionData data = random_attention(shape, 12);
  const AttentionResult ours = run_attention(shape, data, {});
  const AttentionResult theirs =
      attention_by_formula(shape, data, hidden_pairs(longer, 3, shape.length));
  expect_close(ours.y, theirs.y, kTolerance);
  expect_close(ours.dx, theirs.dx, kTolerance);
}

// Gradients that are not finite must reach the loss scale.
TEST_P(SparseAttention, UndefinedKeyMakesItsQueriesUndefined) {
  AttentionCase shape{.length = 100, .pattern = &pattern()};
  AttentionData data = random_attention(shape, 13);
  constexpr std::int64_t kToken = 70;
  data.qkv[0][kToken][4 * shape.width] = std::numeric_limits<float>::quiet_NaN();  // of a key
  const AttentionResult ours = run_attention(shape, data, {});
  EXPECT_TRUE(ours.y[0][kToken].isnan().any().item<bool>());
  EXPECT_TRUE(ours.dx[0][kToken].isnan().any().item<bool>());
}

TEST_P(SparseAttention, FormulaOfPrimitivesEqualsMaskedDenseAttention) {
  choose_primitives(DeviceKind::kCpu, PrimitivesChoice::kAten);
  expect_formula({.samples = 2, .length = 150, .key_heads = 3, .pattern = &pattern()}, 1,
                 kTolerance);
  choose_primitives(DeviceKind::kCpu, PrimitivesChoice::kAuto);
}

TEST_P(SparseAttention, RoundsOnceIn16Bit) {
  AttentionCase shape = bits_case(at::kBFloat16);
  const AttentionData data = random_attention(shape, 2);
  const AttentionResult half = run_attention(shape, data, {});
  shape.dtype = at::kFloat;
  const auto wide = [](const at::Tensor& x) { return x.to(at::kFloat); };
  const AttentionResult whole =
      run_attention(shape, {wide(data.qkv), wide(data.dy), data.gains}, {});
  expect_close(half.y, whole.y, 1.0 / 128);
  expect_close(half.dx, whole.dx, 1.0 / 64);
}

TEST_P(SparseAttention, HasTheSameBitsForEveryNumberOfThreads) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    AttentionCase shape = bits_case(dtype);
    shape.norms = true;
    const AttentionData data = random_attention(shape, 4);
    const AttentionResult one = run_attention(shape, data, {});
    for (const int threads : {2, 5}) expect_same_bits(run_attention(shape, data, {}, threads), one);
  }
}

TEST_P(SparseAttention, ExchangeOfHeadsHasTheBitsOfWholeSamples) {
  AttentionCase shape = bits_case(at::kFloat);
  shape.length = 192;
  const AttentionData data = random_attention(shape, 5);
  const AttentionResult whole = run_attention(shape, data, {});
  for (const int ranks : {2, 3}) {
    SCOPED_TRACE(testing::Message() << ranks << " ranks");
    expect_same_bits(
        run_attention(shape, data, {.ranks = ranks, .exchange = ContextExchange::kUlysses}), whole);
  }
}

// Pages of a text in any order; some other text's keys are in the rest.
struct Pages {
  at::Tensor keys, values;
  std::vector<std::int32_t> pages;
};

Pages paged(const at::Tensor& k, const at::Tensor& v, std::int64_t page_tokens) {
  const std::int64_t length = k.size(1), pages = (length + page_tokens - 1) / page_tokens;
  const auto pool = [&] {
    return at::randn({2 * pages, k.size(2), page_tokens, k.size(3)}).to(k.scalar_type());
  };
  Pages all{pool(), pool(), {}};
  for (std::int64_t page = 0; page < pages; ++page) {
    const auto slot = static_cast<std::int32_t>(2 * (pages - 1 - page));
    all.pages.push_back(slot);
    const std::int64_t first = page * page_tokens, count = std::min(page_tokens, length - first);
    for (const auto& [pool_of, x] : {std::pair{all.keys, k}, std::pair{all.values, v}})
      pool_of[slot].narrow(1, 0, count).copy_(x[0].narrow(0, first, count).transpose(0, 1));
  }
  return all;
}

TEST_P(SparseAttention, DecodingHasTheBitsOfWholeSamples) {
  constexpr std::int64_t kLength = 150, kFirstHead = 1;
  const PatternOfHeads heads{pattern(), kFirstHead};
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    at::manual_seed(6);
    const at::Tensor q = at::randn({1, kLength, 6, 24}).to(dtype);
    const at::Tensor k = at::randn({1, kLength, 3, 24}).to(dtype);
    const at::Tensor v = at::randn({1, kLength, 3, 24}).to(dtype);
    const AttentionPrimitives& attention = primitives(q).attention;
    const at::Tensor whole = attention.attend_sparse(q, k, v, heads).y;
    for (const std::int64_t page_tokens : {7, 16, 64}) {
      const Pages pages = paged(k, v, page_tokens);
      for (const std::int64_t step : {1, 11, 150})
        for (std::int64_t at = 0; at < kLength; at += step) {
          const std::int64_t count = std::min(step, kLength - at);
          const at::Tensor part = attention.attend_sparse_pages(
              q.narrow(1, at, count), pages.keys, pages.values,
              {.pages = pages.pages, .position = at, .sample = 1000}, heads);
          ASSERT_TRUE(part.equal(whole.narrow(1, at, count)))
              << count << " tokens at " << at << ", pages of " << page_tokens;
        }
    }
  }
}

TEST_P(SparseAttention, FormulaOfPrimitivesDecodesTheSame) {
  constexpr std::int64_t kLength = 100;
  const PatternOfHeads heads{pattern(), 2};
  at::manual_seed(7);
  const at::Tensor q = at::randn({1, kLength, 4, 16});
  const at::Tensor k = at::randn({1, kLength, 2, 16}), v = at::randn({1, kLength, 2, 16});
  const at::Tensor fused = primitives(q).attention.attend_sparse(q, k, v, heads).y;
  const Pages pages = paged(k, v, 7);
  choose_primitives(DeviceKind::kCpu, PrimitivesChoice::kAten);
  for (const auto& [at, count] : {std::pair<std::int64_t, std::int64_t>{0, 50}, {50, 1}, {51, 49}})
    expect_close(primitives(q).attention.attend_sparse_pages(
                     q.narrow(1, at, count), pages.keys, pages.values,
                     {.pages = pages.pages, .position = at, .sample = kLength}, heads),
                 fused.narrow(1, at, count), kTolerance);
  choose_primitives(DeviceKind::kCpu, PrimitivesChoice::kAuto);
}

// A thread keeps its memory for tiles.
TEST_P(SparseAttention, NumbersOfAnotherSampleDoNotMatter) {
  const PatternOfHeads heads{pattern()};
  const auto results_of = [&](const at::Tensor& x) {
    const AttentionPrimitives& attention = primitives(x).attention;
    const Attended made = attention.attend_sparse(x, x, x, heads);
    const at::Tensor dq = at::zeros_like(x), dk = at::zeros_like(x), dv = at::zeros_like(x);
    attention.attend_sparse_gradient(x, x, x, made, x, dq, dk, dv, heads);
    return std::vector{made.y, dq, dk, dv};
  };
  const float nan = std::numeric_limits<float>::quiet_NaN();
  results_of(at::randn({1, 200, 2, 16}).fill_(nan));
  for (const at::Tensor& result : results_of(at::randn({1, 100, 2, 16})))
    EXPECT_TRUE(result.isfinite().all().item<bool>());
}

// Scores of more than 88 would overflow without the running maximum.
TEST_P(SparseAttention, LargeScoresStayFinite) {
  AttentionCase shape{.length = 150, .pattern = &pattern()};
  AttentionData data = random_attention(shape, 8);
  data.qkv *= 30;
  const AttentionResult ours = run_attention(shape, data, {});
  const AttentionResult theirs =
      attention_by_formula(shape, data, hidden_pairs(pattern(), 4, shape.length));
  expect_close(ours.y, theirs.y, 1e-3);
  EXPECT_TRUE(ours.dx.isfinite().all().item<bool>());
}

INSTANTIATE_TEST_SUITE_P(, SparseAttention, testing::ValuesIn(all_patterns()),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace strata
