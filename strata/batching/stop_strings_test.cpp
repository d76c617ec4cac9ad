#include "strata/batching/stop_strings.h"

#include <gtest/gtest.h>

#include <random>

#include "strata/base/errors.h"
#include "strata/base/utf8.h"

namespace strata {
namespace {

using Texts = std::vector<std::string>;

struct Cut {
  std::string shown;
  std::optional<std::size_t> met;
};

// The stop string that ends first; of two that end together the longer one.
Cut cut_by_search(const Texts& stops, const std::string& text) {
  for (std::size_t end = 1; end <= text.size(); ++end) {
    std::optional<std::size_t> met;
    for (std::size_t i = 0; i < stops.size(); ++i)
      if (text.substr(0, end).ends_with(stops[i]) && (!met || stops[i].size() > stops[*met].size()))
        met = i;
    if (met) return {text.substr(0, end - stops[*met].size()), met};
  }
  return {text, std::nullopt};
}

std::size_t bytes_to_hold(const Texts& stops, const std::string& text) {
  std::size_t most = 0;
  for (const std::string& stop : stops)
    for (std::size_t size = 1; size < stop.size(); ++size)
      if (text.ends_with(stop.substr(0, size))) most = std::max(most, size);
  return most;
}

TEST(StopStrings, EqualASearchForAnyCutOfTheText) {
  const Texts letters = {"a", "b", "\u00e4", "\u20ac", "\u20ad"};
  std::mt19937 random(3);
  const auto write = [&](std::size_t count) {
    std::string text;
    for (std::size_t i = 0; i < count; ++i) text += letters[random() % letters.size()];
    return text;
  };
  int met = 0;
  for (int round = 0; round < 20000; ++round) {
    Texts stops(random() % 4);
    for (std::string& stop : stops) stop = write(1 + random() % 4);
    StopStrings watch(stops);
    std::string text, shown;
    while (text.size() < 20) {
      const std::string piece = write(random() % 4);
      text += piece;
      const std::string more = watch.push(piece);
      EXPECT_EQ(utf8_bytes(more), more.size());
      shown += more;
      const Cut expected = cut_by_search(stops, text);
      const std::size_t held = expected.met ? 0 : bytes_to_hold(stops, text);
      ASSERT_EQ(shown, expected.shown.substr(0, expected.shown.size() - held)) << text;
      ASSERT_EQ(watch.met(), expected.met) << text;
    }
    EXPECT_EQ(shown + watch.finish(), cut_by_search(stops, text).shown);
    EXPECT_EQ(watch.finish(), "");
    met += watch.met().has_value();
  }
  EXPECT_GT(met, 2000);
  EXPECT_LT(met, 18000);
}

TEST(StopStrings, CutsInsideAPieceAndStaysSilentAfterwards) {
  StopStrings watch({"\n\n", "END"});
  EXPECT_EQ(watch.push("one\n"), "one");
  EXPECT_EQ(watch.push("two E"), "\ntwo ");
  EXPECT_EQ(watch.push("NDLESS"), "");
  EXPECT_EQ(watch.met(), 1u);
  EXPECT_EQ(watch.push("more\n\n"), "");
  EXPECT_EQ(watch.finish(), "");
}

TEST(StopStrings, PreferTheLongerOfTwoThatEndTogether) {
  StopStrings watch({"c", "abc", "bc"});
  EXPECT_EQ(watch.push("xabc"), "x");
  EXPECT_EQ(watch.met(), 1u);
}

TEST(StopStrings, ReturnHeldBytesAtTheEnd) {
  StopStrings watch({"</s>"});
  EXPECT_EQ(watch.push("a</"), "a");
  EXPECT_EQ(watch.finish(), "</");
  EXPECT_FALSE(watch.met().has_value());
}

TEST(StopStrings, RefuseAnEmptyOne) { EXPECT_THROW(StopStrings({"a", ""}), UserError); }

}  // namespace
}  // namespace strata
