#include "strata/grammar/token_grammar.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "strata/grammar/matches_test.h"

namespace strata {
namespace {

using Tokens = std::vector<std::int64_t>;

Tokens tokens_of(const AllowedTokens& allowed) {
  Tokens tokens;
  for (std::size_t i = 0; i < allowed.bits.size() * 64; ++i)
    if ((allowed.bits[i / 64] >> (i % 64) & 1) != 0) tokens.push_back(static_cast<std::int64_t>(i));
  return tokens;
}

struct Vocabulary {
  explicit Vocabulary(const RootOf& root, std::vector<std::string> tokens)
      : grammar(automaton_of(root), std::make_shared<const TokenTrie>(std::move(tokens))) {}
  Tokens after(const Tokens& answer) { return tokens_of(grammar.allowed(text, answer)); }
  TokenGrammar grammar;
  TokenGrammar::Text text;
};

TEST(TokenGrammar, TokensMayEndWithinACharacter) {
  Vocabulary words(
      regex_root("[\xC3\xA9\xE2\x82\xAC]+x"),  // an e with an acute accent, a euro sign
      {"\xC3", "\xA9", "\xE2\x82", "\xAC", "\xA9\xE2", "\x82", "x", "\xC3\xA9", "\xC3\xC3"});
  EXPECT_EQ(words.after({}), (Tokens{0, 2, 7}));
  EXPECT_EQ(words.after({0}), (Tokens{1, 4}));
  EXPECT_EQ(words.after({0, 4}), (Tokens{5}));
  EXPECT_EQ(words.after({0, 4, 5}), (Tokens{3}));
  EXPECT_EQ(words.after({0, 1}), (Tokens{0, 2, 6, 7}));
}

TEST(TokenGrammar, TokensWithoutBytesAreNeverAllowed) {
  Vocabulary words(regex_root("(a|b)*"), {"", "a", "", "ab", "ba", "c", "a"});
  EXPECT_EQ(words.after({}), (Tokens{1, 3, 4, 6}));
}

TEST(TokenGrammar, OnlyTokensThatCanBecomeAMatchAreAllowed) {
  // "ab" leads to a rule that never ends.
  Vocabulary words(gbnf_root("root ::= \"ac\" | \"ab\" loop\nloop ::= \"x\" loop"),
                   {"a", "ab", "ac", "abx", "b", "c"});
  EXPECT_EQ(words.after({}), (Tokens{0, 2}));
  EXPECT_EQ(words.after({0}), (Tokens{5}));
}

TEST(TokenGrammar, EndIsAllowedExactlyWhenTheTextMatches) {
  Vocabulary words(regex_root("a{1,2}"), {"a", "aa", "aaa"});
  EXPECT_FALSE(words.grammar.allowed(words.text, Tokens{}).may_end);
  EXPECT_TRUE(words.grammar.allowed(words.text, Tokens{0}).may_end);
  EXPECT_EQ(words.after({0}), (Tokens{0}));
  const AllowedTokens full = words.grammar.allowed(words.text, Tokens{1});
  EXPECT_TRUE(full.may_end);
  EXPECT_EQ(tokens_of(full), Tokens{});
}

TEST(TokenGrammar, TextsMayBeShortenedAndReplaced) {
  Vocabulary words(regex_root("ab*c|xy"), {"a", "b", "c", "x", "y"});
  EXPECT_EQ(words.after({0, 1, 1}), (Tokens{1, 2}));
  EXPECT_EQ(words.after({0, 1, 1, 2}), Tokens{});
  EXPECT_EQ(words.after({0}), (Tokens{1, 2}));
  EXPECT_EQ(words.after({3}), (Tokens{4}));
  EXPECT_EQ(words.after({}), (Tokens{0, 3}));
}

TEST(TokenGrammar, RefusedTokensAreABugOfTheCaller) {
  Vocabulary words(regex_root("ab"), {"a", "b", ""});
  EXPECT_THROW(words.after({1}), InternalError);
  EXPECT_THROW(words.after({2}), InternalError);
  EXPECT_EQ(words.after({0}), (Tokens{1}));
}

TEST(TokenGrammar, AnswersShareAGrammar) {
  Vocabulary words(regex_root("(ab|cd)*"), {"a", "b", "c", "d"});
  TokenGrammar::Text other;
  EXPECT_EQ(words.after({0}), (Tokens{1}));
  EXPECT_EQ(tokens_of(words.grammar.allowed(other, Tokens{2})), (Tokens{3}));
  EXPECT_EQ(words.after({0, 1}), (Tokens{0, 2}));
}

TEST(TokenGrammar, LongAnswersForgetStatesAndContinue) {
  // Every length is a state of its own.
  Vocabulary words(regex_root("[^x]{0,1000000}x"), {"abcdefgh", "x", "\xF0\x9F", "\x98\x80"});
  std::string text;
  Tokens answer;
  for (int i = 0; i < 12'000; ++i) answer.push_back(0);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(words.after(answer), (Tokens{0, 1, 2}));
    answer.push_back(0);
  }
}

TEST(TokenTrie, NodesHaveTheTokensBelowThem) {
  const TokenTrie trie({"b", "ab", "a", "", "abc", "ab", "\xFF"});
  std::string bytes;
  for (const auto& node : trie.nodes()) bytes += static_cast<char>(node.byte);
  EXPECT_EQ(bytes, "abcb\xFF");
  EXPECT_EQ(trie.nodes()[0].after, 3u);
  EXPECT_EQ(trie.nodes()[1].after, 3u);
  EXPECT_EQ(trie.nodes()[3].after, 4u);
  EXPECT_EQ(Tokens(trie.tokens_of(1).begin(), trie.tokens_of(1).end()), (Tokens{1, 5}));
  EXPECT_EQ(trie.depth(), 3u);
}

}  // namespace
}  // namespace strata
