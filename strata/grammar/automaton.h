/// Compiles the rules of a grammar to automata over bytes, which call one another.
///
/// Only what can be part of a matching text remains: from every state the end of its rule can be
/// reached. A rule precedes the rules that it calls before its first byte.
///
/// Cost     linear in the size of the grammar, except for choices within loops: the edges of all
///          pairs of neighbours.
/// Errors   UserError: no text matches, a rule is not defined or calls itself without a byte before
///          (left recursion), more than kMaxEdges.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "strata/grammar/grammar.h"

namespace strata {

struct Automaton {
  static constexpr std::size_t kMaxEdges = 500'000;
  static constexpr std::uint32_t kEnd = 0;  ///< the state after the root rule
  static constexpr std::uint32_t kNoCounter = UINT32_MAX;

  struct ByteEdge {
    std::uint32_t set = 0;
    std::uint32_t target = 0;
    auto operator<=>(const ByteEdge&) const = default;
  };
  struct CallEdge {
    std::uint32_t rule = 0;
    std::uint32_t target = 0;
    auto operator<=>(const CallEdge&) const = default;
  };
  /// The state of a rule that repeats another one `least` to `most` times.
  struct Counter {
    std::uint32_t rule = 0;
    std::uint32_t least = 0;
    std::uint32_t most = 0;
  };
  struct State {
    std::vector<ByteEdge> bytes = {};
    std::vector<CallEdge> calls = {};
    std::uint32_t counter = kNoCounter;
    bool accepts = false;  ///< the rule may end here; a counter decides by its count
  };

  /// `root` matches the whole text. Defines a rule of the grammar for it.
  static Automaton compile(Grammar& grammar, Grammar::Expression root);

  std::vector<State> states;
  std::vector<Counter> counters;
  std::vector<std::uint32_t> starts;  ///< by rule; a rule calls later ones before its first byte
  std::uint32_t root = 0;             ///< a rule
  bool root_may_be_empty = false;
  std::vector<ByteSet> sets;
  std::array<std::uint16_t, 256> classes = {};  ///< bytes of a class are in the same sets
  std::vector<unsigned char> class_bytes;       ///< a byte of each class
};

}  // namespace strata
