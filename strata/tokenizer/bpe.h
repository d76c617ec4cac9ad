/// Merges the characters of a word into tokens, the best-ranked pair first (byte-pair encoding).
///
/// A long text is first split where no merge can cross. A merge of tokens l and r joins l's last
/// symbol to r's first, so two adjacent symbols that are in no merge form a border. The result is
/// the same, and the parts between borders repeat and are cached.
///
/// Threads  const, any thread; a cache belongs to one.
/// Cost     O(n log n) in the bytes of a word between borders.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "strata/base/json_document.h"

namespace strata {

struct TextHash {
  using is_transparent = void;
  std::size_t operator()(std::string_view text) const {
    return std::hash<std::string_view>()(text);
  }
};
template <typename Value>
using TextMap = std::unordered_map<std::string, Value, TextHash, std::equal_to<>>;

struct BpeRules {
  TextMap<std::int32_t> ids;  ///< by the bytes of the token
  std::vector<std::array<std::string, 2>> merges;
  bool byte_level = false;     ///< symbols are bytes; otherwise characters
  bool whole_words = false;    ///< a word that is a token is not split, regardless of the merges
  bool fuse_unknown = false;   ///< unknown characters in a row are one token
  std::int32_t unknown = -1;   ///< token of unknown characters; -1: they are dropped
  bool byte_fallback = false;  ///< unknown characters become the tokens of their bytes
  std::array<std::int32_t, 256> byte_tokens{};  ///< with byte_fallback; -1: none
};

class BpeModel {
 public:
  using WordCache = TextMap<std::vector<std::int32_t>>;

  explicit BpeModel(BpeRules rules);

  /// Appends the tokens of the word.
  void encode(std::string_view word, WordCache& cache, std::vector<std::int64_t>& tokens) const;

 private:
  struct Merge {
    std::int32_t rank;
    std::int32_t token;
  };
  struct Symbol {
    std::int32_t token;  // -1: merged into the previous one
    std::int32_t previous;
    std::int32_t next;
  };
  class Merging;

  std::size_t unit_bytes(std::string_view text) const;
  void append_symbols(std::string_view unit, std::vector<std::int32_t>& symbols) const;
  std::vector<std::int32_t> symbols_of(std::string_view text) const;
  void encode_between_borders(std::string_view part, WordCache& cache,
                              std::vector<std::int64_t>& tokens) const;
  const Merge* find(std::int32_t left, std::int32_t right) const;

  BpeRules rules_;
  std::unordered_map<std::uint64_t, Merge> merges_;
  std::unordered_set<std::uint64_t> neighbours_;
};

/// Reads the `model` of a tokenizer.json, of type BPE. `byte_level`: its names spell bytes.
BpeRules read_bpe_rules(const JsonPart& model, bool byte_level);

}  // namespace strata
