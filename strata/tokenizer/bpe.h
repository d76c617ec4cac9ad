/// Merges the characters of a word into tokens, the best-ranked pair first (byte-pair encoding).
///
/// A long text is first cut where no merge can reach across: a merge of tokens l and r puts l's
/// last symbol beside r's first, so a pair of neighbours that no merge has is a border. The result
/// is the same, and what lies between borders repeats and is looked up.
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
  bool whole_words = false;    ///< a word that is a token is that token, whatever the merges say
  bool fuse_unknown = false;   ///< unknown characters in a row are one token
  std::int32_t unknown = -1;   ///< token of unknown characters; -1: they are left out
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
    std::int32_t token;  // -1: merged into the one in front
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

/// Of the `model` of a tokenizer.json, of type BPE. `byte_level`: its names spell bytes.
BpeRules read_bpe_rules(const JsonPart& model, bool byte_level);

}  // namespace strata
