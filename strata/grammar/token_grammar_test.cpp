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
  Tokens after(const Tokens& answer) {
    TokenGrammar::Text text;
    return tokens_of(grammar.allowed(text, answer));
  }
  TokenGrammar grammar;
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
  TokenGrammar::Text text;
  EXPECT_FALSE(words.grammar.allowed(text, Tokens{}).may_end);
  const AllowedTokens one = words.grammar.allowed(text, Tokens{0});
  EXPECT_TRUE(one.may_end);
  EXPECT_EQ(tokens_of(one), (Tokens{0}));
  const AllowedTokens full = words.grammar.allowed(text, Tokens{0, 0});
  EXPECT_TRUE(full.may_end);
  EXPECT_EQ(tokens_of(full), Tokens{});
}

TEST(TokenGrammar, RefusedTokensAreABugOfTheCaller) {
  Vocabulary words(regex_root("ab"), {"a", "b", ""});
  EXPECT_THROW(words.after({1}), InternalError);
  EXPECT_THROW(words.after({2}), InternalError);
  TokenGrammar::Text text;
  EXPECT_EQ(tokens_of(words.grammar.allowed(text, Tokens{0})), (Tokens{1}));
}

TEST(TokenGrammar, AnswersShareAGrammar) {
  Vocabulary words(regex_root("(ab|cd)*"), {"a", "b", "c", "d"});
  TokenGrammar::Text one, other;
  EXPECT_EQ(tokens_of(words.grammar.allowed(one, Tokens{0})), (Tokens{1}));
  EXPECT_EQ(tokens_of(words.grammar.allowed(other, Tokens{2})), (Tokens{3}));
  EXPECT_EQ(tokens_of(words.grammar.allowed(one, Tokens{0, 1})), (Tokens{0, 2}));
}

// A guess that was wrong is followed by a text without it.
TEST(TokenGrammar, TextsMayGoBackAndContinueOtherwise) {
  Vocabulary words(regex_root("(ab|cd|a(cb)*d)*"), {"a", "b", "c", "d"});
  TokenGrammar::Text text;
  std::mt19937 random(3);
  Tokens answer;
  for (int step = 0; step < 2000; ++step) {
    const Tokens next = tokens_of(words.grammar.allowed(text, answer));
    EXPECT_EQ(next, words.after(answer));
    if (random() % 3 == 0) {
      answer.resize(answer.size() - random() % (answer.size() + 1));
    } else {
      answer.push_back(next[random() % next.size()]);
    }
  }
  EXPECT_THROW(words.grammar.allowed(text, Tokens{1}), InternalError);
  EXPECT_EQ(tokens_of(words.grammar.allowed(text, Tokens{0})), (Tokens{1, 2, 3}));
}

TEST(TokenGrammar, LongAnswersForgetStatesAndContinue) {
  // Every length is a state of its own, within a call of a rule.
  const auto words_of = [] {
    return Vocabulary(regex_root("((a([^xyz]{0,287999})x)|y)*z"), {"abcdefgh", "x", "y", "z"});
  };
  Vocabulary words = words_of();
  TokenGrammar::Text text;
  Tokens answer(3, 2);  // "yyy"
  const auto after = [](const Tokens& tokens) {
    return tokens.size() <= 3 ? Tokens({0, 2, 3}) : Tokens({0, 1});
  };
  for (int i = 0; i < 36'000; ++i) {
    EXPECT_EQ(tokens_of(words.grammar.allowed(text, answer)), after(answer)) << i;
    answer.push_back(0);
  }
  const auto ends = [&](Vocabulary& vocabulary, TokenGrammar::Text& follower) {
    Tokens tokens = answer;
    EXPECT_EQ(tokens_of(vocabulary.grammar.allowed(follower, tokens)), Tokens({1}));
    tokens.push_back(1);
    EXPECT_EQ(tokens_of(vocabulary.grammar.allowed(follower, tokens)), Tokens({0, 2, 3}));
    tokens.push_back(3);
    EXPECT_TRUE(vocabulary.grammar.allowed(follower, tokens).may_end);
  };
  ends(words, text);
  for (const std::int64_t length : {36'002, 2, 0, 10, 3, 30'000}) {  // back to forgotten states
    const Tokens before(answer.begin(), answer.begin() + length);
    EXPECT_EQ(tokens_of(words.grammar.allowed(text, before)), after(before)) << length;
  }
  TokenGrammar::Text another;
  ends(words, another);
  Vocabulary fresh = words_of();
  TokenGrammar::Text at_once;
  ends(fresh, at_once);
}

TEST(TokenGrammar, ManyTextsAreFollowedWithinTheLimits) {
  std::string pattern;
  std::vector<std::string> tokens = {"\""};
  std::mt19937 random(3);
  const auto word = [&](std::size_t size) {
    std::string word;
    for (std::size_t i = 0; i < size; ++i) word += static_cast<char>('A' + random() % 58);
    for (char& c : word)
      if (c > 'Z' && c < 'a') c = '_';
    return word;
  };
  for (int i = 0; i < 10'000; ++i) pattern += (i > 0 ? "|" : "") + word(8);
  for (int i = 0; i < 100'000; ++i) tokens.push_back(word(1 + random() % 8));
  Vocabulary words(regex_root("\"(" + pattern + ")\""), tokens);
  EXPECT_EQ(words.after({}), Tokens{0});
  EXPECT_GT(words.after({0}).size(), 5'000u);
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
