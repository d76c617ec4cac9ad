// Random grammars are compared with sets of all short texts, which are computed from the rules
// without an automaton.
#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <random>
#include <set>

#include "strata/grammar/matches_test.h"
#include "strata/grammar/token_grammar.h"

namespace strata {
namespace {

constexpr std::size_t kLongest = 6;
constexpr char kAlphabet[] = "abc";
using TextSet = std::set<std::string>;

// What a part of a grammar matches: all short texts, and all short beginnings of texts of any
// length.
struct Language {
  TextSet texts;
  TextSet beginnings;
  bool some = false;  // matches a text
  bool operator==(const Language&) const = default;
};

void unite(TextSet& into, const TextSet& from) { into.insert(from.begin(), from.end()); }

TextSet joined(const TextSet& first, const TextSet& second) {
  TextSet all;
  for (const std::string& a : first)
    for (const std::string& b : second)
      if (a.size() + b.size() <= kLongest) all.insert(a + b);
  return all;
}

Language sequence_of(const Language& first, const Language& second) {
  if (!first.some || !second.some) return {};
  Language both{
      .texts = joined(first.texts, second.texts), .beginnings = first.beginnings, .some = true};
  unite(both.beginnings, joined(first.texts, second.beginnings));
  return both;
}

struct Part;
using PartPtr = std::shared_ptr<const Part>;
struct Part {
  enum class Kind : std::uint8_t { kByte, kSequence, kChoice, kRepeat, kCall } kind;
  char byte = 0;
  std::vector<PartPtr> parts = {};
  std::uint32_t least = 0, most = 0;  // of kRepeat; kUnbounded
  std::size_t rule = 0;
};

Language language_of(const Part& part, const std::vector<Language>& rules) {
  switch (part.kind) {
    case Part::Kind::kByte:
      return {.texts = {std::string(1, part.byte)},
              .beginnings = {"", std::string(1, part.byte)},
              .some = true};
    case Part::Kind::kCall:
      return rules[part.rule];
    case Part::Kind::kSequence: {
      Language all{.texts = {""}, .beginnings = {""}, .some = true};
      for (const PartPtr& each : part.parts) all = sequence_of(all, language_of(*each, rules));
      return all;
    }
    case Part::Kind::kChoice: {
      Language all;
      for (const PartPtr& each : part.parts) {
        const Language one = language_of(*each, rules);
        unite(all.texts, one.texts);
        unite(all.beginnings, one.beginnings);
        all.some |= one.some;
      }
      return all;
    }
    default:
      break;
  }
  const Language one = language_of(*part.parts.front(), rules);
  Language power{.texts = {""}, .beginnings = {""}, .some = true}, all;
  for (std::uint32_t count = 0;; ++count) {
    if (count >= part.least) {
      const Language before = all;
      unite(all.texts, power.texts);
      unite(all.beginnings, power.beginnings);
      all.some |= power.some;
      if (all == before && count > part.least + kLongest) return all;
    }
    if (count == part.most) return all;
    power = sequence_of(power, one);
  }
}

class RandomGrammar {
 public:
  explicit RandomGrammar(unsigned seed) : random_(seed) {
    const std::size_t count = 1 + below(3);
    for (std::size_t i = 0; i < count; ++i) bodies_.push_back(part(3, count));
  }

  std::vector<Language> languages() const {
    std::vector<Language> rules(bodies_.size());
    while (true) {
      std::vector<Language> next;
      for (const PartPtr& body : bodies_) next.push_back(language_of(*body, rules));
      if (next == rules) return rules;
      rules = std::move(next);
    }
  }

  Grammar::Expression write(Grammar& grammar) const {
    std::vector<Grammar::Rule> rules;
    for (std::size_t i = 0; i < bodies_.size(); ++i)
      rules.push_back(grammar.declare("r" + std::to_string(i)));
    for (std::size_t i = 0; i < bodies_.size(); ++i)
      grammar.define(rules[i], write(grammar, *bodies_[i], rules));
    return grammar.call(rules.front());
  }

  std::size_t below(std::size_t count) { return random_() % count; }
  std::string text(std::size_t longest) {
    std::string text(below(longest + 1), ' ');
    for (char& byte : text) byte = kAlphabet[below(3)];
    return text;
  }

 private:
  PartPtr part(int depth, std::size_t rules) {
    Part made{.kind = Part::Kind::kByte};
    made.byte = kAlphabet[below(3)];
    const std::size_t kind = depth == 0 ? below(6) : below(16);
    if (kind < 4) return std::make_shared<const Part>(made);
    if (kind < 6) {
      made.kind = Part::Kind::kCall;
      made.rule = below(rules);
      return std::make_shared<const Part>(made);
    }
    made.kind = kind < 10   ? Part::Kind::kSequence
                : kind < 13 ? Part::Kind::kChoice
                            : Part::Kind::kRepeat;
    const std::size_t count = made.kind == Part::Kind::kRepeat ? 1 : below(4);
    for (std::size_t i = 0; i < count; ++i) made.parts.push_back(part(depth - 1, rules));
    constexpr std::array<std::uint32_t, 6> kMost = {1, 2, 3, 150, 200, Grammar::kUnbounded};
    made.most = kMost[below(6)];
    made.least = static_cast<std::uint32_t>(below(std::min<std::size_t>(made.most, 3) + 1));
    return std::make_shared<const Part>(made);
  }

  static Grammar::Expression write(Grammar& grammar, const Part& part,
                                   const std::vector<Grammar::Rule>& rules) {
    std::vector<Grammar::Expression> parts;
    for (const PartPtr& each : part.parts) parts.push_back(write(grammar, *each, rules));
    switch (part.kind) {
      case Part::Kind::kByte:
        return grammar.text(std::string_view(&part.byte, 1));
      case Part::Kind::kCall:
        return grammar.call(rules[part.rule]);
      case Part::Kind::kSequence:
        return grammar.sequence(parts);
      case Part::Kind::kChoice:
        return grammar.choice(parts);
      default:
        return grammar.repeat(parts.front(), part.least, part.most);
    }
  }

  std::mt19937 random_;
  std::vector<PartPtr> bodies_;
};

void expect_equal_texts(Matches& matches, const Language& language, const std::string& text = "") {
  ASSERT_EQ(matches(text), language.texts.contains(text)) << '"' << text << '"';
  ASSERT_EQ(matches.begins(text), language.beginnings.contains(text)) << '"' << text << '"';
  if (text.size() == kLongest) return;
  for (const char byte : std::string_view(kAlphabet))
    expect_equal_texts(matches, language, text + byte);
}

void expect_equal_tokens(RandomGrammar& random, const std::shared_ptr<const Automaton>& automaton,
                         const Language& language) {
  std::vector<std::string> words;
  for (int i = 0; i < 70; ++i) words.push_back(random.text(3));
  for (const char byte : std::string_view(kAlphabet)) words.emplace_back(1, byte);
  TokenGrammar grammar(automaton, std::make_shared<const TokenTrie>(words));
  for (const std::string& text : language.beginnings) {
    if (text.size() > 3) continue;
    std::vector<std::int64_t> answer;
    for (const char byte : text) answer.push_back(70 + (byte - 'a'));
    TokenGrammar::Text place;
    const AllowedTokens allowed = grammar.allowed(place, answer);
    ASSERT_EQ(allowed.may_end, language.texts.contains(text));
    for (std::size_t i = 0; i < words.size(); ++i)
      ASSERT_EQ((allowed.bits[i / 64] >> (i % 64) & 1) != 0,
                !words[i].empty() && language.beginnings.contains(text + words[i]))
          << '"' << text << "\" \"" << words[i] << '"';
  }
}

TEST(Oracle, RandomGrammarsMatchTheTextsOfTheirRules) {
  int compared = 0, empty = 0, recursive = 0;
  for (unsigned seed = 0; seed < 3000; ++seed) {
    SCOPED_TRACE(seed);
    RandomGrammar random(seed);
    const Language language = random.languages().front();
    const RootOf root = [&](Grammar& grammar) { return random.write(grammar); };
    const std::string refusal = refusal_of(root);
    if (refusal.find("no text matches") != std::string::npos) {
      ++empty;
      EXPECT_FALSE(language.some);
    } else if (refusal.find("begins with itself") != std::string::npos) {
      ++recursive;
    } else {
      ASSERT_EQ(refusal, "");
      ++compared;
      Matches matches(root);
      expect_equal_texts(matches, language);
      expect_equal_tokens(random, automaton_of(root), language);
    }
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(compared, 1000);
  EXPECT_GT(empty, 10);
  EXPECT_GT(recursive, 10);
}

}  // namespace
}  // namespace strata
