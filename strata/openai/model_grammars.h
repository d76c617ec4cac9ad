/// Caches a model's token trie and its last compiled grammars.
///
/// Requests with the same grammar share its states and masks.
///
/// Threads  any; compiles without a lock.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "strata/grammar/automaton.h"
#include "strata/grammar/token_grammar.h"
#include "strata/tokenizer/tokenizer.h"

namespace strata {

class ModelGrammars {
 public:
  static constexpr std::size_t kKept = 8;                             ///< grammars
  static constexpr std::size_t kMaxKeyBytes = std::size_t{64} << 10;  ///< of a grammar that is kept

  /// The grammar of this key, or the one that `compile` makes. `vocabulary`: tokens of the model.
  std::shared_ptr<TokenGrammar> find(const std::string& key, const Tokenizer& tokenizer,
                                     std::int64_t vocabulary,
                                     const std::function<Automaton()>& compile);

 private:
  std::shared_ptr<TokenGrammar> known(const std::string& key);

  std::once_flag trie_made_;
  std::shared_ptr<const TokenTrie> trie_;
  std::mutex mutex_;                                                       // of what follows
  std::list<std::pair<std::string, std::shared_ptr<TokenGrammar>>> last_;  // the latest first
};

}  // namespace strata
