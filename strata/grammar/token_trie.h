/// Sorts the tokens of a vocabulary by their bytes into a tree, so that tokens with a common
/// beginning are matched together.
///
/// Threads  const, any thread.
/// Cost     of the constructor: sorts the vocabulary.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace strata {

class TokenTrie {
 public:
  /// `tokens`: bytes by token. A token without bytes, or with more than kMaxTokenBytes, is not part
  /// of any text.
  explicit TokenTrie(std::vector<std::string> tokens);

  static constexpr std::size_t kMaxTokenBytes = 4096;

  /// A node has the bytes on its path; nodes have the order of their bytes, so all below a node
  /// follow it.
  struct Node {
    unsigned char byte = 0;
    std::uint16_t depth = 0;        ///< bytes before this one
    std::uint32_t after = 0;        ///< the first node that is not below this one
    std::uint32_t first_token = 0;  ///< index in tokens(); the next node's is the end
  };
  std::span<const Node> nodes() const { return std::span(nodes_).first(nodes_.size() - 1); }
  std::span<const std::int64_t> tokens_of(std::size_t node) const {
    const std::uint32_t first = nodes_[node].first_token;
    return std::span(ids_).subspan(first, nodes_[node + 1].first_token - first);
  }
  std::size_t depth() const { return depth_; }  ///< bytes of the longest token

  std::size_t size() const { return tokens_.size(); }  ///< tokens, with those without bytes
  const std::string& bytes_of(std::int64_t token) const { return tokens_.at(token); }

 private:
  std::vector<std::string> tokens_;
  std::vector<Node> nodes_;  // and a sentinel after the last
  std::vector<std::int64_t> ids_;
  std::size_t depth_ = 0;
};

}  // namespace strata
