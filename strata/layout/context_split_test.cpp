#include "strata/layout/context_split.h"

#include <gtest/gtest.h>

#include <set>

namespace strata {
namespace {

// All pairs (query, earlier or own token) of a rank's queries.
std::int64_t pairs_of(const ContextSplit& split, int rank, std::int64_t length) {
  std::int64_t pairs = 0;
  for (const TokenRange& range : own_tokens(split, rank, length))
    for (std::int64_t i = 0; i < range.count; ++i) pairs += range.first + i + 1;
  return pairs;
}

TEST(ContextSplit, EveryTokenHasOneRankAndAllRanksDoTheSameWork) {
  for (const int ranks : {1, 2, 3, 4, 8}) {
    const ContextSplit split{.ranks = ranks};
    const std::int64_t length = 48;
    std::set<std::int64_t> seen;
    for (int rank = 0; rank < ranks; ++rank) {
      for (const TokenRange& range : own_tokens(split, rank, length))
        for (std::int64_t i = 0; i < range.count; ++i)
          EXPECT_TRUE(seen.insert(range.first + i).second);
      EXPECT_EQ(pairs_of(split, rank, length), pairs_of(split, 0, length));
    }
    EXPECT_EQ(std::ssize(seen), length);
  }
}

TEST(ContextSplit, OwnersHaveTheirChunks) {
  const ContextSplit split{.ranks = 3};
  for (int chunk = 0; chunk < split.chunks(); ++chunk) {
    const int owner = split.owner(chunk);
    EXPECT_TRUE(chunk == split.early_chunk(owner) || chunk == split.late_chunk(owner));
  }
  EXPECT_EQ(own_tokens(split, 1, 60)[0], (TokenRange{10, 10}));
  EXPECT_EQ(own_tokens(split, 1, 60)[1], (TokenRange{40, 10}));
}

TEST(ContextSplit, TensorParallelPartsCoverTheRanksTokensInOrder) {
  for (const int ranks : {1, 2, 3}) {
    for (const int parts : {1, 2, 3, 4}) {
      const ContextSplit split{.ranks = ranks};
      const std::int64_t length = 2 * ranks * parts * 5;
      for (int rank = 0; rank < ranks; ++rank) {
        std::vector<std::int64_t> whole, joined;
        const auto add = [](std::vector<std::int64_t>& to, const std::array<TokenRange, 2>& all) {
          for (const TokenRange& range : all)
            for (std::int64_t i = 0; i < range.count; ++i) to.push_back(range.first + i);
        };
        add(whole, own_tokens(split, rank, length));
        for (int part = 0; part < parts; ++part)
          add(joined, own_tokens(split, rank, length, part, parts));
        EXPECT_EQ(joined, whole) << ranks << " ranks, " << parts << " parts";
      }
    }
  }
}

TEST(ContextSplit, UnitIsWhatChunksBlocksAndPartsDivide) {
  EXPECT_EQ(ContextSplit{}.unit(1), 1);
  EXPECT_EQ(ContextSplit{}.unit(4), 4);
  EXPECT_EQ((ContextSplit{.ranks = 2}).unit(1), 4);
  EXPECT_EQ((ContextSplit{.ranks = 2}).unit(3), 12);
  EXPECT_EQ((ContextSplit{.ranks = 2, .block = 8}).unit(1), 32);
  EXPECT_EQ((ContextSplit{.ranks = 2, .block = 8}).unit(12), 96);
  EXPECT_EQ((ContextSplit{.ranks = 1, .block = 8}).unit(1), 16);
  EXPECT_EQ((ContextSplit{.ranks = 2, .exchange = ContextExchange::kUlysses}).unit(1), 4);
}

}  // namespace
}  // namespace strata
