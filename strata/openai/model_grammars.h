/// Keeps what grammars need of a model: its tokens as a tree, made when a request first needs it,
/// and the grammars of the last requests, so that requests with the same schema share what was
/// found.
///
/// Threads  any
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
  static constexpr std::size_t kKept = 8;  ///< grammars

  /// The grammar of this key, or the one that `compile` makes. `vocabulary`: tokens of the model.
  std::shared_ptr<TokenGrammar> find(const std::string& key, const Tokenizer& tokenizer,
                                     std::int64_t vocabulary,
                                     const std::function<Automaton()>& compile);

 private:
  std::mutex mutex_;
  std::shared_ptr<const TokenTrie> trie_;
  std::list<std::pair<std::string, std::shared_ptr<TokenGrammar>>> last_;  // the latest first
};

}  // namespace strata
