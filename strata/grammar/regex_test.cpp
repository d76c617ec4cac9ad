#include <gtest/gtest.h>

#include "strata/grammar/matches_test.h"

namespace strata {
namespace {

bool regex_matches(const std::string& pattern, std::string_view text, bool whole = true) {
  return Matches(regex_root(pattern, whole))(text);
}

void expect_refused(const RootOf& root, const std::string& part) {
  const std::string error = refusal_of(root);
  EXPECT_NE(error.find(part), std::string::npos) << error << "\nhas no " << part;
}

TEST(Regex, QuantifiersRepeatTheLastPart) {
  Matches matches(regex_root("ab{2,3}(cd)*e?f+"));
  for (const char* text : {"abbf", "abbbcdcdeff", "abbef"}) EXPECT_TRUE(matches(text)) << text;
  for (const char* text : {"abf", "abbbbf", "abbe", "abbcdcf", "abbfx", ""})
    EXPECT_FALSE(matches(text)) << text;
}

TEST(Regex, LazyQuantifiersMatchTheSameTexts) {
  Matches matches(regex_root("a*?b+?c??d{1,2}?"));
  EXPECT_TRUE(matches("aabbcdd"));
  EXPECT_TRUE(matches("bd"));
  EXPECT_FALSE(matches("aad"));
}

TEST(Regex, ClassesHaveRangesEscapesAndComplements) {
  Matches matches(regex_root("[a-c\\d_-][^a-z\\s][\\]\\\\]"));
  for (const char* text : {"a0]", "7Z\\", "_\xC3\xA9]", "-\xF0\x9F\x98\x80]"})
    EXPECT_TRUE(matches(text)) << text;
  for (const char* text : {"d0]", "aa]", "a ]", "a0["}) EXPECT_FALSE(matches(text)) << text;
}

TEST(Regex, DotIsAnyCharacterButALineEnd) {
  Matches matches(regex_root("."));
  for (const char* text : {"a", "\xC3\xA9", "\xE2\x82\xAC", "\xF0\x9F\x98\x80", "\r"})
    EXPECT_TRUE(matches(text)) << text;
  for (const char* text : {"", "\n", "ab", "\xC3", "\xFF", "\xED\xA0\x80", "\xC0\x80"})
    EXPECT_FALSE(matches(text)) << text;
  EXPECT_TRUE(matches.begins("\xE2\x82"));
  EXPECT_FALSE(matches.begins("\xE2\xE2"));
}

TEST(Regex, EscapesNameCharacters) {
  EXPECT_TRUE(
      regex_matches("\\x41\\u00e9\\U0001F600\\n\\.\\w\\D", "A\xC3\xA9\xF0\x9F\x98\x80\n._x"));
  EXPECT_FALSE(regex_matches("\\w", "\xC3\xA9"));
}

TEST(Regex, BracesThatAreNoBoundsAreCharacters) { EXPECT_TRUE(regex_matches("{a}x{b", "{a}x{b")); }

TEST(Regex, AnchorsHoldAtTheEndsOfAlternatives) {
  EXPECT_TRUE(regex_matches("^a$|^b$", "b"));
  EXPECT_TRUE(regex_matches("^a|b$", "axx", false));
  EXPECT_TRUE(regex_matches("^a|b$", "xxb", false));
  EXPECT_FALSE(regex_matches("^a|b$", "xbx", false));
  EXPECT_TRUE(regex_matches("a", "xxaxx", false));
  EXPECT_FALSE(regex_matches("a", "xxaxx"));
}

TEST(Regex, LargeBoundsAreCounted) {
  Matches matches(regex_root("(ab?){3,100000}c"));
  std::string text;
  for (int i = 0; i < 5000; ++i) text += i % 3 == 0 ? "ab" : "a";
  EXPECT_TRUE(matches(text + "c"));
  EXPECT_FALSE(matches("aabc"));
  EXPECT_TRUE(matches("aabac"));
  EXPECT_LT(automaton_of(regex_root("(ab?){3,100000}c"))->states.size(), 20u);
}

TEST(Regex, CountedPartsThatMayBeEmptyMatch) {
  Matches matches(regex_root("((ab)?(cd)?){150,200}"));
  EXPECT_TRUE(matches(""));
  std::string text;
  for (int i = 0; i < 400; ++i) text += i % 2 == 0 ? "ab" : "cd";
  EXPECT_TRUE(matches(text));
  for (int i = 0; i < 200; ++i) text += "ab";
  EXPECT_FALSE(matches(text));
}

TEST(Regex, CountsAreExact) {
  Matches matches(regex_root("[a-f]{150,152}"));
  for (const int size : {149, 150, 151, 152, 153})
    EXPECT_EQ(matches(std::string(static_cast<std::size_t>(size), 'f')), size >= 150 && size <= 152)
        << size;
  Matches open(regex_root("(?:xy){140,}"));
  const auto text = [](int count) {
    std::string all;
    for (int i = 0; i < count; ++i) all += "xy";
    return all;
  };
  EXPECT_FALSE(open(text(139)));
  EXPECT_TRUE(open(text(140)));
  EXPECT_TRUE(open(text(1000)));
}

TEST(Regex, RefusesWhatItDoesNotSupportByName) {
  const std::pair<const char*, const char*> cases[] = {{"a(?=b)", "look-around"},
                                                       {"(?<!a)b", "look-around"},
                                                       {"(a)\\1", "back-references"},
                                                       {"(?P<x>a)(?P=x)", "references"},
                                                       {"(?i)a", "flags"},
                                                       {"\\bword", "word boundaries"},
                                                       {"\\p{L}", "classes of Unicode"},
                                                       {"a*+", "possessive"},
                                                       {"(?>a)", "atomic"},
                                                       {"a$b", "anchors"},
                                                       {"a^b", "anchors"},
                                                       {"(^a)", "anchors"},
                                                       {"(a$)", "anchors"},
                                                       {"[[:alpha:]]", "named classes"},
                                                       {"\\Aa", "anchors"},
                                                       {"a{,3}", "number"},
                                                       {"\\q", "escape"},
                                                       {"\\ud800", "no character"}};
  for (const auto& [pattern, part] : cases) expect_refused(regex_root(pattern), part);
}

TEST(Regex, RefusesMalformedPatternsWithTheirPlace) {
  for (const char* pattern : {"(", ")", "(a", "a)", "[", "[]", "[a", "[b-a]", "*", "+a", "a**",
                              "a{3,2}", "a{9999999}", "\\", "\\x4", "\xFF", "[\\d-z]"})
    expect_refused(regex_root(pattern), "line 1, column ");
  expect_refused(regex_root("ab(?=c)"), "column 5");
}

}  // namespace
}  // namespace strata
