#include "strata/batching/speculation.h"

#include <gtest/gtest.h>

#include "strata/base/errors.h"

namespace strata {
namespace {

using Guess = std::vector<std::int64_t>;

TEST(GuessByNgrams, ContinuesTheLatestEarlierPlace) {
  const Guess text = {1, 2, 3, 9, 1, 2, 4, 8, 7, 1, 2};
  EXPECT_EQ(guess_by_ngrams(text, 2, 3), (Guess{4, 8, 7}));
  EXPECT_EQ(guess_by_ngrams(text, 1, 1), (Guess{4}));
  EXPECT_EQ(guess_by_ngrams(text, 3, 3), (Guess{}));
}

TEST(GuessByNgrams, ContinuesAPeriodPastTheEnd) {
  EXPECT_EQ(guess_by_ngrams(Guess{1, 2, 3, 1, 2, 3, 1}, 2, 7), (Guess{2, 3, 1, 2, 3, 1, 2}));
  EXPECT_EQ(guess_by_ngrams(Guess{5, 5, 5}, 2, 3), (Guess{5, 5, 5}));
}

TEST(GuessByNgrams, GivesNothingForShortTextsAndRefusesBadNumbers) {
  EXPECT_TRUE(guess_by_ngrams({}, 1, 4).empty());
  EXPECT_TRUE(guess_by_ngrams(Guess{1, 1}, 2, 4).empty());
  EXPECT_TRUE(guess_by_ngrams(Guess{1, 1, 1}, 2, 0).empty());
  EXPECT_THROW(guess_by_ngrams(Guess{1, 1}, 0, 4), InternalError);
}

}  // namespace
}  // namespace strata
