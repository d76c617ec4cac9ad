/// Finds the tokens that may follow a text so that it can still become one that a grammar matches.
///
/// A token may follow if some continuation of the text with its bytes matches; a token may end
/// within a character. Answers to one request share a grammar, and with it the states and tokens
/// that were found.
///
/// Threads  any; one at a time finds tokens.
/// Cost     the first time in a state one walk over the vocabulary without tokens whose first bytes
///          cannot follow; then a copy of a bit a token.
/// Errors   UserError: limits of StateSets.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "strata/grammar/automaton.h"
#include "strata/grammar/state_sets.h"
#include "strata/grammar/token_trie.h"

namespace strata {

struct AllowedTokens {
  std::vector<std::uint64_t> bits;  ///< by token
  bool may_end = false;             ///< the text matches
};

class TokenGrammar {
 public:
  TokenGrammar(std::shared_ptr<const Automaton> automaton, std::shared_ptr<const TokenTrie> trie);

  /// The tokens of the last call, with the state after each.
  class Text {
   private:
    friend class TokenGrammar;
    std::vector<std::int64_t> tokens_;
    std::vector<StateSets::State> states_;
    std::size_t forgotten_ = 0;  // of the states, the first ones
    std::uint64_t age_ = 0;      // of the others
  };

  /// The tokens that may follow `tokens`. Those with which the text's last call began, too, are not
  /// read again. InternalError if the grammar does not allow `tokens`.
  AllowedTokens allowed(Text& text, std::span<const std::int64_t> tokens);

 private:
  using Mask = std::vector<std::uint64_t>;
  StateSets::State follow(Text& text, std::span<const std::int64_t> tokens);
  const Mask& mask_of(StateSets::State state);
  Mask walk(StateSets::State state);

  const std::shared_ptr<const TokenTrie> trie_;
  std::mutex mutex_;  // of what follows
  StateSets sets_;
  std::vector<std::unique_ptr<const Mask>> masks_;  // by state
  std::uint64_t masks_age_ = 0;
  std::size_t mask_count_ = 0;
};

}  // namespace strata
