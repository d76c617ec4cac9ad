// Reads a grammar of one of four notations, and follows a text. The tokens that a TokenGrammar
// allows must be those with which StateSets continue.
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "fuzz.h"
#include "strata/grammar/gbnf.h"
#include "strata/grammar/json_schema.h"
#include "strata/grammar/regex.h"
#include "strata/grammar/token_grammar.h"

namespace {

using namespace strata;

std::shared_ptr<const TokenTrie> bytes_as_tokens() {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  return std::make_shared<const TokenTrie>(std::move(tokens));
}

Grammar::Expression read(Grammar& grammar, char notation, std::string_view text) {
  switch (notation % 4) {
    case 0:
      return read_regex(grammar, text);
    case 1:
      return read_regex(grammar, text, {.write = {}, .whole = false, .all_line_ends = true});
    case 2:
      return read_gbnf(grammar, text);
    default:
      return read_json_schema(
          grammar, nlohmann::ordered_json::parse(text.begin(), text.end(), nullptr, false));
  }
}

// The first bytes of the text, as far as they are allowed.
void follow(const std::shared_ptr<const Automaton>& automaton, std::string_view text) {
  static const auto trie = bytes_as_tokens();
  TokenGrammar grammar(automaton, trie);
  TokenGrammar::Text followed;
  StateSets sets(automaton);
  StateSets::State state = sets.start();
  std::vector<std::int64_t> tokens;
  for (const char each : text.substr(0, 64)) {
    sets.begin();
    const auto byte = static_cast<unsigned char>(each);
    const AllowedTokens allowed = grammar.allowed(followed, tokens);
    fuzz::require(allowed.may_end == sets.may_end(state), "a text ends where its state may end");
    for (int token = 0; token < 256; ++token) {
      const bool may = (allowed.bits[token / 64] >> (token % 64) & 1) != 0;
      fuzz::require(
          may == (sets.next(state, static_cast<unsigned char>(token)) != StateSets::kDead),
          "a token may follow if its byte may");
    }
    state = sets.next(state, byte);
    if (state == StateSets::kDead) return;
    tokens.push_back(byte);
  }
}

}  // namespace

void fuzz_input(std::string_view input) {
  if (input.empty()) return;
  const fuzz::TwoTexts texts(input.substr(1));
  if (input[0] % 4 == 3 && !nlohmann::ordered_json::accept(texts.first.begin(), texts.first.end()))
    return;
  fuzz::accepted([&] {
    Grammar grammar;
    const auto root = read(grammar, input[0], texts.first);
    follow(std::make_shared<const Automaton>(Automaton::compile(grammar, root)), texts.second);
  });
}
