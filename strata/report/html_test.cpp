#include "strata/report/html.h"

#include <gtest/gtest.h>

namespace strata::report {
namespace {

const std::string kReplacement = "\xEF\xBF\xBD";

TEST(Escape, MarkupBecomesText) {
  EXPECT_EQ(escape("<script>\"a\" & 'b'"), "&lt;script&gt;&quot;a&quot; &amp; &#39;b&#39;");
}

TEST(Escape, KeepsLinesAndLettersOfAllAlphabets) {
  const std::string text = "a\tb\ngr\u00fc\u00df \u05d0 \u4e2d \U0001F600";
  EXPECT_EQ(escape(text), text);
}

TEST(Escape, ReplacesWhatIsNotUtf8) {
  EXPECT_EQ(escape("a\xFFz"), "a" + kReplacement + "z");
  EXPECT_EQ(escape("\x80"), kReplacement);                       // a continuation without a start
  EXPECT_EQ(escape("\xC3"), kReplacement);                       // a start without continuation
  EXPECT_EQ(escape("\xC0\xAF"), kReplacement + kReplacement);    // '/' in more bytes than it needs
  EXPECT_EQ(escape("\xED\xA0\x80").substr(0, 3), kReplacement);  // half of a surrogate pair
  EXPECT_EQ(escape("\xF5\x80\x80\x80").substr(0, 3), kReplacement);  // beyond the last character
}

TEST(Escape, ReplacesControlCharacters) {
  EXPECT_EQ(escape(std::string_view("a\0b\x1b", 4)), "a" + kReplacement + "b" + kReplacement);
}

TEST(Ticks, AreRoundAndCoverTheRange) {
  EXPECT_EQ(ticks(0, 10, 5), std::vector<double>({0, 2, 4, 6, 8, 10}));
  EXPECT_EQ(ticks(1, 400, 7), std::vector<double>({100, 200, 300, 400}));
  const std::vector<double> fine = ticks(1.61, 1.69, 4);
  ASSERT_EQ(fine.size(), 4u);
  EXPECT_NEAR(fine.front(), 1.62, 1e-12);
  EXPECT_NEAR(fine.back(), 1.68, 1e-12);
}

TEST(Ticks, OfAnEmptyRangeAreOne) { EXPECT_EQ(ticks(3, 3, 5), std::vector<double>({3})); }

TEST(TickDecimals, TellNeighboursApart) {
  EXPECT_EQ(tick_decimals({0, 20, 40}), 0);
  EXPECT_EQ(tick_decimals({0, 0.5, 1}), 1);
  EXPECT_EQ(tick_decimals({1.62, 1.64}), 2);
}

TEST(SignedPercent, AlwaysHasASign) {
  EXPECT_EQ(signed_percent(0.0312), "+3.1\u00a0%");
  EXPECT_EQ(signed_percent(-0.05), "\u22125.0\u00a0%");
}

}  // namespace
}  // namespace strata::report
