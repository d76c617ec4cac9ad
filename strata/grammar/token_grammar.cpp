#include "strata/grammar/token_grammar.h"

#include <algorithm>
#include <utility>

#include "strata/base/errors.h"

namespace strata {
namespace {

constexpr std::size_t kMaxMaskBytes = std::size_t{16} << 20;

}  // namespace

TokenGrammar::TokenGrammar(std::shared_ptr<const Automaton> automaton,
                           std::shared_ptr<const TokenTrie> trie)
    : trie_(std::move(trie)), sets_(std::move(automaton)) {}

AllowedTokens TokenGrammar::allowed(Text& text, std::span<const std::int64_t> tokens) {
  const std::scoped_lock lock(mutex_);
  sets_.begin();
  const StateSets::State state = follow(text, tokens);
  STRATA_CHECK(state != StateSets::kDead, "grammar.allowed");
  return {.bits = mask_of(state), .may_end = sets_.may_end(state)};
}

StateSets::State TokenGrammar::follow(Text& text, std::span<const std::int64_t> tokens) {
  if (text.age_ != sets_.age()) text = {};
  auto common = static_cast<std::size_t>(std::ranges::mismatch(text.tokens_, tokens).in1 -
                                         text.tokens_.begin());
  if (common <= text.forgotten_) common = text.forgotten_ = 0;
  text.tokens_.resize(common);
  text.states_.resize(common);
  StateSets::State state = common > 0 ? text.states_.back() : sets_.start();
  for (const std::int64_t token : tokens.subspan(common)) {
    const std::string& bytes = trie_->bytes_of(token);
    STRATA_CHECK(!bytes.empty(), "grammar.allowed");
    sets_.expect_bytes(bytes.size());
    for (const char byte : bytes) state = sets_.next(state, static_cast<unsigned char>(byte));
    const std::uint64_t age = sets_.age();
    state = sets_.keep(state);
    if (sets_.age() != age) text.forgotten_ = text.states_.size();
    text.tokens_.push_back(token);
    text.states_.push_back(state);
  }
  text.age_ = sets_.age();
  return state;
}

const TokenGrammar::Mask& TokenGrammar::mask_of(StateSets::State state) {
  const std::size_t bytes = (trie_->size() + 63) / 64 * sizeof(std::uint64_t);
  if (masks_age_ != sets_.age() || mask_count_ * bytes > kMaxMaskBytes) {
    masks_.clear();
    mask_count_ = 0;
    masks_age_ = sets_.age();
  }
  if (masks_.size() <= state) masks_.resize(state + 1);
  if (masks_[state] == nullptr) {
    masks_[state] = std::make_unique<const Mask>(walk(state));
    ++mask_count_;
  }
  return *masks_[state];
}

TokenGrammar::Mask TokenGrammar::walk(StateSets::State state) {
  Mask mask((trie_->size() + 63) / 64);
  std::vector<StateSets::State> path(trie_->depth() + 1);  // by depth
  path[0] = state;
  const std::span<const TokenTrie::Node> nodes = trie_->nodes();
  for (std::size_t i = 0; i < nodes.size();) {
    const TokenTrie::Node& node = nodes[i];
    const StateSets::State next = sets_.next(path[node.depth], node.byte);
    if (next == StateSets::kDead) {
      i = node.after;
      continue;
    }
    path[node.depth + 1] = next;
    for (const std::int64_t token : trie_->tokens_of(i))
      mask[token / 64] |= std::uint64_t{1} << (token % 64);
    ++i;
  }
  return mask;
}

}  // namespace strata
