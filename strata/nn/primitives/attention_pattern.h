/// States which earlier tokens a token attends to: all of them, or those of some blocks.
///
/// Tokens lie in blocks of equal length. All tokens of a block attend to the same blocks of keys,
/// their own block always among them, and never to later tokens. Sliding windows alone are exact to
/// the token.
///
/// Source  Child et al. 2019 (fixed); Beltagy et al. 2020 (sliding, Longformer); Zaheer et al. 2020
///         (BigBird). They resemble the causal layouts of DeepSpeed's SparsityConfig classes.
/// Errors  key_blocks(), work(), density(): the fields must contradict neither the kind nor one
///         another (models/attention_options.h checks them).
/// Units   tokens, unless a name says blocks.
/// Threads const, callable from any thread.
#pragma once

#include <cstdint>
#include <vector>

namespace strata {

enum class PatternKind : std::uint8_t {
  kDense,    ///< all earlier tokens
  kSliding,  ///< the last `window` tokens, the token itself among them
  /// Windows side by side, and the global blocks of all earlier windows.
  kFixed,
  /// Windows side by side of different lengths, global blocks, and random ones.
  kVariable,
  /// The last blocks, the first blocks of the sample, and random ones.
  kBigBird,
  /// The last blocks and global blocks, whose own tokens attend to all earlier ones.
  kLongformer,
};
const char* name_of(PatternKind kind);  ///< "dense", "sliding", "fixed", ...

struct WindowLength {
  std::int64_t tokens = 64;
  friend bool operator==(const WindowLength&, const WindowLength&) = default;
};

struct BlockIndex {
  std::int64_t index = 0;
  friend bool operator==(const BlockIndex&, const BlockIndex&) = default;
};

/// The work of attention to a sample's blocks.
struct PatternWork {
  /// Pairs of query and key in the blocks, on average over the forms, as a share of those of dense
  /// attention, tokens^2 / 2.
  double share = 0;
  std::int64_t most_keys = 0;  ///< in the blocks of any query
};

struct AttentionPattern {
  PatternKind kind = PatternKind::kDense;
  std::int64_t block = 64;  ///< a multiple of kTileUnit (nn/kernels/attention_tiles.h)
  /// Sliding, bigbird, longformer: tokens that a token or block attends to, up to and including
  /// itself. Fixed: the length of all windows.
  std::int64_t window = 1024;
  std::vector<WindowLength> windows = {};  ///< variable; the last one repeats
  /// Fixed: blocks of each window. Bigbird: first blocks of the sample.
  std::int64_t global_blocks = 1;
  std::vector<BlockIndex> globals = {{0}};  ///< variable, longformer
  /// Variable, bigbird: blocks drawn for a block of queries from all up to its own, some of which
  /// it may attend to anyway.
  std::int64_t random_blocks = 1;
  /// Heads take so many forms of the pattern in turn. Fixed: with other global blocks of a window,
  /// the last ones first. Variable, bigbird: with other random blocks.
  std::int64_t forms = 1;
  std::int64_t dense_every = 0;  ///< each so-many-th layer is dense; 0: none

  bool sparse() const { return kind != PatternKind::kDense; }
  std::int64_t form(std::int64_t head) const { return head % forms; }

  /// Tokens that a query attends to at most, its own the last one; 0: the blocks state them all.
  std::int64_t exact_window() const { return kind == PatternKind::kSliding ? window : 0; }

  /// Writes the blocks of keys of a block of queries, in ascending order.
  void key_blocks(std::int64_t form, std::int64_t query_block,
                  std::vector<std::int32_t>& blocks) const;

  /// The blocks' share of a sample's work. The process remembers results: long samples have many
  /// blocks, and plans ask often.
  PatternWork work(std::int64_t tokens) const;

  /// Pairs of tokens that attend, as a share of those of dense attention.
  double density(std::int64_t tokens) const;

  friend bool operator==(const AttentionPattern&, const AttentionPattern&) = default;
};

}  // namespace strata
