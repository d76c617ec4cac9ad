#include "strata/openai/model_grammars.h"

#include <algorithm>
#include <vector>

#include "strata/tokenizer/text_stream.h"

namespace strata {
namespace {

// Bytes by token, as within a text: tokenizers may strip the front of a text, so each token stands
// after one that has bytes itself.
std::shared_ptr<const TokenTrie> trie_of(const Tokenizer& tokenizer, std::int64_t vocabulary) {
  std::vector<std::int64_t> before = {0};
  while (before[0] < vocabulary && tokenizer.decode(before).empty()) ++before[0];
  const TextStream stream(tokenizer, before);
  std::vector<std::string> tokens;
  for (std::int64_t token = 0; token < vocabulary; ++token)
    tokens.push_back(stream.bytes_of(token));
  return std::make_shared<const TokenTrie>(std::move(tokens));
}

}  // namespace

// The caller holds the mutex.
std::shared_ptr<TokenGrammar> ModelGrammars::known(const std::string& key) {
  const auto found = std::ranges::find(last_, key, &decltype(last_)::value_type::first);
  if (found == last_.end()) return nullptr;
  last_.splice(last_.begin(), last_, found);
  return last_.front().second;
}

std::shared_ptr<TokenGrammar> ModelGrammars::find(const std::string& key,
                                                  const Tokenizer& tokenizer,
                                                  std::int64_t vocabulary,
                                                  const std::function<Automaton()>& compile) {
  std::call_once(trie_made_, [&] { trie_ = trie_of(tokenizer, vocabulary); });
  {
    const std::scoped_lock lock(mutex_);
    if (auto grammar = known(key)) return grammar;
  }
  auto grammar =
      std::make_shared<TokenGrammar>(std::make_shared<const Automaton>(compile()), trie_);
  if (key.size() > kMaxKeyBytes) return grammar;
  const std::scoped_lock lock(mutex_);
  if (auto other = known(key)) return other;  // another request compiled it meanwhile
  last_.emplace_front(key, grammar);
  if (last_.size() > kKept) last_.pop_back();
  return grammar;
}

}  // namespace strata
