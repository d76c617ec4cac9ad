#include "strata/grammar/token_trie.h"

#include <algorithm>
#include <string_view>
#include <utility>

namespace strata {

TokenTrie::TokenTrie(std::vector<std::string> tokens) : tokens_(std::move(tokens)) {
  std::vector<std::pair<std::string_view, std::int64_t>> sorted;
  for (std::size_t i = 0; i < tokens_.size(); ++i)
    if (!tokens_[i].empty() && tokens_[i].size() <= kMaxTokenBytes)
      sorted.emplace_back(tokens_[i], static_cast<std::int64_t>(i));
  std::ranges::sort(sorted);
  std::vector<std::uint32_t> path;  // nodes of the last token
  std::string_view last;
  const auto close = [&](std::size_t depth) {
    for (; path.size() > depth; path.pop_back())
      nodes_[path.back()].after = static_cast<std::uint32_t>(nodes_.size());
  };
  for (const auto& [bytes, token] : sorted) {
    const auto common =
        static_cast<std::size_t>(std::ranges::mismatch(bytes, last).in1 - bytes.begin());
    close(common);
    for (std::size_t depth = common; depth < bytes.size(); ++depth) {
      path.push_back(static_cast<std::uint32_t>(nodes_.size()));
      nodes_.push_back({.byte = static_cast<unsigned char>(bytes[depth]),
                        .depth = static_cast<std::uint16_t>(depth),
                        .first_token = static_cast<std::uint32_t>(ids_.size())});
    }
    ids_.push_back(token);
    last = bytes;
    depth_ = std::max(depth_, bytes.size());
  }
  close(0);
  nodes_.push_back({.first_token = static_cast<std::uint32_t>(ids_.size())});
}

}  // namespace strata
