#include <gtest/gtest.h>

#include "strata/grammar/matches_test.h"

namespace strata {
namespace {

TEST(Gbnf, RulesCallOneAnother) {
  Matches matches(gbnf_root(R"gbnf(# sums
root  ::= expr ("," ws expr)*
expr  ::= term ([-+*/] term)*   # left to right
term  ::= number | "(" ws expr ws ")"
number ::= [0-9]+
ws ::= [ \t\n]{0,2}
)gbnf"));
  for (const char* text : {"1", "1+2*(3-4)", "12, (7),\n((8))", "( 1 )"})
    EXPECT_TRUE(matches(text)) << text;
  for (const char* text : {"", "1+", "(1", "1,   2", "()", "1 "})
    EXPECT_FALSE(matches(text)) << text;
}

TEST(Gbnf, RulesSpanLinesWithinGroupsAndAfterBars) {
  Matches matches(
      gbnf_root("root ::= (\n  \"a\" # one\n  | \"b\"\n) |\n  \"c\"\nrest ::= \"d\"\n"));
  for (const char* text : {"a", "b", "c"}) EXPECT_TRUE(matches(text)) << text;
  EXPECT_FALSE(matches("d"));
}

TEST(Gbnf, LiteralsAndClassesHaveEscapes) {
  Matches matches(gbnf_root(R"(root ::= "\"\\\n\x41\u00e9\U0001F600" [^\]\\a-c] . "é")"));
  EXPECT_TRUE(matches("\"\\\nA\xC3\xA9\xF0\x9F\x98\x80z\n\xC3\xA9"));
  EXPECT_FALSE(matches("\"\\\nA\xC3\xA9\xF0\x9F\x98\x80]\n\xC3\xA9"));
}

TEST(Gbnf, RepetitionsTakeTheWholeLastSymbol) {
  Matches matches(gbnf_root("root ::= \"ab\"{2} \"cd\"{1,} x? x*\nx ::= \"e\""));
  for (const char* text : {"ababcd", "ababcdcdeee"}) EXPECT_TRUE(matches(text)) << text;
  for (const char* text : {"abcd", "abab", "abbcd"}) EXPECT_FALSE(matches(text)) << text;
}

TEST(Gbnf, RightRecursionNeedsNoDeeperStates) {
  Matches matches(gbnf_root("root ::= \"a\" root | \"b\""));
  EXPECT_TRUE(matches(std::string(10'000, 'a') + "b"));
  EXPECT_LT(matches.sets().states(), 10u);
}

TEST(Gbnf, NestedRecursionMatchesPairs) {
  Matches matches(gbnf_root("root ::= \"(\" root \")\" root | \"\""));
  const std::string deep = std::string(2000, '(') + std::string(2000, ')');
  EXPECT_TRUE(matches(deep + "()(())"));
  EXPECT_FALSE(matches(deep + ")"));
  EXPECT_FALSE(matches(deep + "("));
}

TEST(Gbnf, EmptyRulesAreCalledInAllPlaces) {
  Matches matches(
      gbnf_root("root ::= e a e b e\ne ::= \"\" | \"x\" e\na ::= e \"a\" e\nb ::= e | \"b\""));
  for (const char* text : {"a", "xxaxx", "axbx", "ab", "xaxxxx"})
    EXPECT_TRUE(matches(text)) << text;
  for (const char* text : {"", "x", "b", "abb", "axbxa"}) EXPECT_FALSE(matches(text)) << text;
}

TEST(Gbnf, DeadEndsAreNoBeginnings) {
  // What begins with "b" never ends, and "c" leads to a rule that matches nothing.
  Matches matches(
      gbnf_root("root ::= \"a\" | \"b\" loop | \"c\" none\nloop ::= \"x\" loop\nnone ::= []"));
  EXPECT_TRUE(matches("a"));
  EXPECT_FALSE(matches.begins("b"));
  EXPECT_FALSE(matches.begins("c"));
}

TEST(Gbnf, RefusalsNameTheRuleOrThePlace) {
  const std::pair<const char*, const char*> cases[] = {
      {"rule ::= \"a\"", "no rule 'root'"},
      {"root ::= missing", "'missing': the rule is not defined"},
      {"root ::= \"a\"\nroot ::= \"b\"", "two rules have the same name"},
      {"root ::= x \"a\"\nx ::= y? x | \"b\"\ny ::= \"c\"", "'x': the rule begins with itself"},
      {"root ::= <think>", "names of tokens are not supported"},
      {"root ::= \"a", "line 1, column 12"},
      {"root ::= \"a\" )", "line 1, column 14"},
      {"root = \"a\"", "'::='"},
      {"root ::= \"a\"\nx ::= (\"b\"", "line 2"},
      {"root ::= [b-a]", "no characters"},
      {"root ::= \"a\"{3,1}", "the minimum exceeds the maximum"},
      {"root ::= \"\\q\"", "escape"},
      {"", "no rule 'root'"},
      {"root ::= \"a\" root", "no text matches"}};
  for (const auto& [text, part] : cases) {
    const std::string error = refusal_of(gbnf_root(text));
    EXPECT_NE(error.find(part), std::string::npos) << error << "\nhas no " << part;
  }
}

}  // namespace
}  // namespace strata
