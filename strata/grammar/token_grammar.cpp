#include "strata/grammar/token_grammar.h"

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
  follow(text, tokens);
  STRATA_CHECK(text.state_ != StateSets::kDead, "grammar.allowed");
  return {.bits = mask_of(text.state_), .may_end = sets_.may_end(text.state_)};
}

void TokenGrammar::follow(Text& text, std::span<const std::int64_t> tokens) {
  STRATA_CHECK(text.length_ <= tokens.size(), "grammar.allowed");
  if (text.age_ != sets_.age()) {
    text.length_ = 0;
    text.state_ = sets_.start();
    text.age_ = sets_.age();
  }
  for (const std::int64_t token : tokens.subspan(text.length_)) {
    const std::string& bytes = trie_->bytes_of(token);
    STRATA_CHECK(!bytes.empty(), "grammar.allowed");
    sets_.expect_bytes(bytes.size());
    for (const char byte : bytes)
      text.state_ = sets_.next(text.state_, static_cast<unsigned char>(byte));
    text.state_ = sets_.keep(text.state_);
    ++text.length_;
  }
  text.age_ = sets_.age();
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
