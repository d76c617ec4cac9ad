#include "strata/nn/primitives/attention_pattern.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

namespace strata {
namespace {

using Blocks = std::vector<std::int32_t>;

Blocks blocks_of(const AttentionPattern& pattern, std::int64_t query_block, std::int64_t form = 0) {
  Blocks blocks = {99};  // from an earlier call
  pattern.key_blocks(form, query_block, blocks);
  return blocks;
}

TEST(AttentionPattern, SlidingWindowListsTheBlocksOfItsFirstQuery) {
  const AttentionPattern pattern{.kind = PatternKind::kSliding, .block = 16, .window = 17};
  EXPECT_EQ(blocks_of(pattern, 0), Blocks({0}));
  EXPECT_EQ(blocks_of(pattern, 3), Blocks({2, 3}));
  const AttentionPattern longer{.kind = PatternKind::kSliding, .block = 16, .window = 18};
  EXPECT_EQ(blocks_of(longer, 3), Blocks({1, 2, 3}));
}

// The example of DeepSpeed's documentation: windows of 4 blocks, the last one of each is global.
TEST(AttentionPattern, FixedListsItsWindowAndGlobalBlocksOfEarlierOnes) {
  AttentionPattern pattern{.kind = PatternKind::kFixed, .block = 16, .window = 64};
  EXPECT_EQ(blocks_of(pattern, 2), Blocks({0, 1, 2}));
  EXPECT_EQ(blocks_of(pattern, 9), Blocks({3, 7, 8, 9}));
  pattern.forms = 4;
  EXPECT_EQ(blocks_of(pattern, 9, 3), Blocks({0, 4, 8, 9}));
  pattern.forms = 2;
  pattern.global_blocks = 2;
  EXPECT_EQ(blocks_of(pattern, 9, 1), Blocks({0, 1, 4, 5, 8, 9}));
}

TEST(AttentionPattern, LastWindowOfVariableRepeats) {
  const AttentionPattern pattern{
      .kind = PatternKind::kVariable, .block = 16, .windows = {{16}, {32}}, .globals = {{0}, {2}}};
  EXPECT_EQ(blocks_of(pattern, 0), Blocks({0}));
  EXPECT_EQ(blocks_of(pattern, 2), Blocks({0, 1, 2}));
  EXPECT_EQ(blocks_of(pattern, 3), Blocks({0, 2, 3}));
  EXPECT_EQ(blocks_of(pattern, 6), Blocks({0, 2, 5, 6}));
}

TEST(AttentionPattern, GlobalBlocksOfLongformerAttendToAllEarlierOnes) {
  const AttentionPattern pattern{
      .kind = PatternKind::kLongformer, .block = 16, .window = 32, .globals = {{0}, {4}}};
  EXPECT_EQ(blocks_of(pattern, 3), Blocks({0, 2, 3}));
  EXPECT_EQ(blocks_of(pattern, 4), Blocks({0, 1, 2, 3, 4}));
  EXPECT_EQ(blocks_of(pattern, 9), Blocks({0, 4, 8, 9}));
}

// Each earlier block is drawn about equally often, and forms draw differently.
TEST(AttentionPattern, RandomBlocksAreDifferentBlocksUpToTheQuerys) {
  const AttentionPattern pattern{.kind = PatternKind::kBigBird,
                                 .block = 16,
                                 .window = 16,
                                 .global_blocks = 0,
                                 .random_blocks = 3,
                                 .forms = 4000};
  constexpr std::int32_t kQuery = 20;
  std::map<std::int32_t, int> drawn;
  std::set<Blocks> lists;
  for (std::int64_t form = 0; form < pattern.forms; ++form) {
    const Blocks blocks = blocks_of(pattern, kQuery, form);
    EXPECT_TRUE(std::is_sorted(blocks.begin(), blocks.end()));
    EXPECT_EQ(std::adjacent_find(blocks.begin(), blocks.end()), blocks.end());
    EXPECT_EQ(blocks.back(), kQuery);
    // A random block may be the query's own.
    EXPECT_TRUE(blocks.size() == 3 || blocks.size() == 4);
    for (const std::int32_t block : blocks) ++drawn[block];
    lists.insert(blocks);
    EXPECT_EQ(blocks, blocks_of(pattern, kQuery, form));
  }
  const double expected = 4000.0 * 3 / (kQuery + 1);
  for (std::int32_t block = 0; block < kQuery; ++block)
    EXPECT_NEAR(drawn[block], expected, 0.2 * expected) << block;
  EXPECT_GT(lists.size(), 1000u);
}

TEST(AttentionPattern, FewEarlierBlocksAreAllDrawn) {
  const AttentionPattern pattern{.kind = PatternKind::kBigBird,
                                 .block = 16,
                                 .window = 16,
                                 .global_blocks = 0,
                                 .random_blocks = 3};
  EXPECT_EQ(blocks_of(pattern, 2), Blocks({0, 1, 2}));
}

TEST(AttentionPattern, DensityCountsPairsOfTokens) {
  const AttentionPattern dense{.block = 16};
  EXPECT_DOUBLE_EQ(dense.density(100), 1);
  const AttentionPattern sliding{.kind = PatternKind::kSliding, .block = 16, .window = 10};
  // 10 keys for each token but the first nine.
  EXPECT_DOUBLE_EQ(sliding.density(100), (100 * 10 - 45) / 5050.0);
  EXPECT_EQ(sliding.work(100).most_keys, 32);
  EXPECT_EQ(sliding.work(20).most_keys, 20);
  // Blocks of 16 x 16 pairs: one for the first block of queries, then two; the last has 4 rows.
  EXPECT_DOUBLE_EQ(sliding.work(100).share, (16 * 16 + 5 * 2 * 16 * 16 + 4 * 2 * 16) / 5000.0);
}

// work() counts the blocks of fixed patterns without listing them.
TEST(AttentionPattern, WorkIsThatOfTheListedBlocks) {
  for (const std::int64_t tokens : {16, 100, 1000})
    for (const AttentionPattern& pattern :
         {AttentionPattern{.kind = PatternKind::kFixed, .block = 16, .window = 64, .forms = 3},
          AttentionPattern{.kind = PatternKind::kFixed,
                           .block = 16,
                           .window = 96,
                           .global_blocks = 2,
                           .forms = 2}}) {
      double pairs = 0;
      std::int64_t most = 0;
      for (std::int64_t query = 0; query * 16 < tokens; ++query)
        for (std::int64_t form = 0; form < pattern.forms; ++form) {
          const std::int64_t blocks = std::ssize(blocks_of(pattern, query, form));
          pairs +=
              static_cast<double>(blocks * 16 * std::min<std::int64_t>(16, tokens - query * 16));
          most = std::max(most, blocks);
        }
      const PatternWork work = pattern.work(tokens);
      EXPECT_DOUBLE_EQ(work.share * static_cast<double>(pattern.forms * tokens * tokens) / 2,
                       pairs);
      EXPECT_EQ(work.most_keys, std::min(tokens, 16 * most));
    }
}

TEST(AttentionPattern, WorkShareAveragesTheForms) {
  AttentionPattern pattern{.kind = PatternKind::kFixed, .block = 16, .window = 32, .forms = 2};
  const double both = pattern.work(200).share;
  pattern.forms = 1;
  EXPECT_DOUBLE_EQ(both, pattern.work(200).share);  // each window has one block of either form
}

}  // namespace
}  // namespace strata
