/// Describes a set of texts as rules over bytes: what the readers of regular expressions, GBNF and
/// JSON Schema build, and what an Automaton is compiled from.
///
/// Repetitions with large bounds are counted, not copied, so "{0,10000}" is as small as "*".
///
/// Threads  one.
/// Errors   UserError: beyond the limits below.
#pragma once

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "strata/grammar/character_set.h"

namespace strata {

using ByteSet = std::bitset<256>;

class Grammar {
 public:
  enum class Expression : std::uint32_t {};
  enum class Rule : std::uint32_t {};
  static constexpr std::uint32_t kUnbounded = UINT32_MAX;

  static constexpr std::uint32_t kMaxPositions = 100'000;  ///< bytes and calls of all rules
  static constexpr std::uint32_t kMaxDepth = 1'000;        ///< of an expression
  static constexpr std::uint32_t kMaxRules = 20'000;

  Expression bytes(const ByteSet& set);
  Expression text(std::string_view text);
  Expression characters(const CharacterSet& set);
  Expression sequence(std::span<const Expression> parts);
  Expression choice(std::span<const Expression> parts);  ///< without parts: matches no text
  Expression sequence(std::initializer_list<Expression> parts);
  Expression choice(std::initializer_list<Expression> parts);
  Expression repeat(Expression part, std::uint32_t least, std::uint32_t most = kUnbounded);
  Expression call(Rule rule);
  Expression optional(Expression part) { return repeat(part, 0, 1); }
  Expression empty() { return sequence({}); }
  Expression nothing() { return choice({}); }

  /// A rule that may be called before it is defined.
  Rule declare(std::string name);
  void define(Rule rule, Expression body);
  bool is_defined(Rule rule) const;

  /// kLoop: the part, once or more often.
  enum class Kind : std::uint8_t { kBytes, kCall, kSequence, kChoice, kLoop };
  struct Node {
    Kind kind = Kind::kSequence;
    std::uint32_t first = 0;  ///< index of a set or in parts, a rule, or the repeated part
    std::uint32_t count = 0;  ///< of parts
    std::uint32_t size = 0;   ///< bytes and calls, at least 1
    std::uint32_t depth = 0;
  };
  struct RuleBody {
    std::string name;
    bool defined = false;
    Expression body{};
    bool counts = false;  ///< the body, `least` to `most` times
    std::uint32_t least = 0;
    std::uint32_t most = 0;
  };
  const std::vector<Node>& nodes() const { return nodes_; }
  const std::vector<ByteSet>& sets() const { return sets_; }
  std::span<const Expression> parts(const Node& node) const {
    return std::span(parts_).subspan(node.first, node.count);
  }
  const std::vector<RuleBody>& rules() const { return rules_; }

 private:
  const Node& at(Expression expression) const {
    return nodes_[static_cast<std::uint32_t>(expression)];
  }
  Expression add(const Node& node);
  Expression group(Kind kind, std::span<const Expression> parts);
  Expression counted(Expression part, std::uint32_t least, std::uint32_t most);

  std::vector<Node> nodes_;
  std::vector<Expression> parts_;
  std::vector<ByteSet> sets_;
  std::map<std::string, Expression> bytes_;  // by the text of a set
  std::vector<RuleBody> rules_;
  std::uint32_t positions_ = 0;
};

}  // namespace strata
