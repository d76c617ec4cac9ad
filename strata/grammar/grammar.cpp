#include "strata/grammar/grammar.h"

#include <algorithm>

#include "strata/base/error_source.h"

namespace strata {
namespace {

constexpr ErrorSource kGrammarErrors{"grammar.build", "ask for less structure"};
// Repetitions of at most so many bytes and calls are copied.
constexpr std::uint64_t kCopied = 128;

void check_limit(const char* what, std::uint64_t value, std::uint64_t most) {
  if (value > most)
    throw kGrammarErrors.user("", what, "at most " + std::to_string(most), std::to_string(value));
}

}  // namespace

Grammar::Expression Grammar::add(const Node& node) {
  check_limit("the grammar nests too deeply", node.depth, kMaxDepth);
  check_limit("the grammar is too large", node.size, kMaxPositions);
  check_limit("the grammar has too many parts", nodes_.size(), 4 * kMaxPositions);
  check_limit("the grammar has too many parts", parts_.size(), 8 * kMaxPositions);
  nodes_.push_back(node);
  return static_cast<Expression>(nodes_.size() - 1);
}

Grammar::Expression Grammar::bytes(const ByteSet& set) {
  const auto [found, is_new] = bytes_.try_emplace(set.to_string());
  if (is_new) {
    sets_.push_back(set);
    found->second = add(
        {.kind = Kind::kBytes, .first = static_cast<std::uint32_t>(sets_.size() - 1), .size = 1});
  }
  return found->second;
}

Grammar::Expression Grammar::text(std::string_view text) {
  check_limit("the grammar is too large", text.size(), kMaxPositions);
  std::vector<Expression> parts;
  parts.reserve(text.size());
  for (const char byte : text) {
    ByteSet set;
    set.set(static_cast<unsigned char>(byte));
    parts.push_back(bytes(set));
  }
  return sequence(parts);
}

Grammar::Expression Grammar::characters(const CharacterSet& set) {
  ByteSet single;
  std::vector<Expression> parts;
  for (const CharacterRange& range : set.ranges())
    for_each_utf8_range(range, [&](ByteRanges ranges) {
      std::vector<Expression> sequence_parts;
      for (const auto& [first, last] : ranges) {
        ByteSet bytes_of_range;
        for (int byte = first; byte <= last; ++byte) bytes_of_range.set(byte);
        if (ranges.size() == 1)
          single |= bytes_of_range;
        else
          sequence_parts.push_back(bytes(bytes_of_range));
      }
      if (!sequence_parts.empty()) parts.push_back(sequence(sequence_parts));
    });
  if (single.any()) parts.push_back(bytes(single));
  return choice(parts);
}

Grammar::Expression Grammar::group(Kind kind, std::span<const Expression> parts) {
  if (parts.size() == 1) return parts.front();
  Node node{.kind = kind,
            .first = static_cast<std::uint32_t>(parts_.size()),
            .count = static_cast<std::uint32_t>(parts.size())};
  std::uint64_t size = 0;
  for (const Expression part : parts) {
    size += at(part).size;
    node.depth = std::max(node.depth, at(part).depth + 1);
  }
  check_limit("the grammar is too large", size, kMaxPositions);
  node.size = std::max(static_cast<std::uint32_t>(size), std::uint32_t{1});
  parts_.insert(parts_.end(), parts.begin(), parts.end());
  return add(node);
}

Grammar::Expression Grammar::sequence(std::span<const Expression> parts) {
  return group(Kind::kSequence, parts);
}

Grammar::Expression Grammar::choice(std::span<const Expression> parts) {
  return group(Kind::kChoice, parts);
}

Grammar::Expression Grammar::sequence(std::initializer_list<Expression> parts) {
  return sequence(std::span(parts.begin(), parts.size()));
}

Grammar::Expression Grammar::choice(std::initializer_list<Expression> parts) {
  return choice(std::span(parts.begin(), parts.size()));
}

Grammar::Expression Grammar::repeat(Expression part, std::uint32_t least, std::uint32_t most) {
  const std::uint64_t copies = most == kUnbounded ? std::max(least, std::uint32_t{1}) : most;
  if (copies > 1 && copies * at(part).size > kCopied) return counted(part, least, most);
  std::vector<Expression> parts(least, part);
  if (most == kUnbounded) {
    const Expression loop = add({.kind = Kind::kLoop,
                                 .first = static_cast<std::uint32_t>(part),
                                 .size = at(part).size,
                                 .depth = at(part).depth + 1});
    if (least == 0) return choice({empty(), loop});
    parts.back() = loop;
  } else if (most > least) {
    Expression rest = choice({empty(), part});  // (part (part ...)?)?
    for (std::uint32_t i = least + 1; i < most; ++i)
      rest = choice({empty(), sequence({part, rest})});
    parts.push_back(rest);
  }
  return sequence(parts);
}

Grammar::Expression Grammar::counted(Expression part, std::uint32_t least, std::uint32_t most) {
  const Rule body = declare("repeated part");
  define(body, part);
  const Rule counter = declare("repetition");
  define(counter, call(body));
  RuleBody& rule = rules_[static_cast<std::uint32_t>(counter)];
  rule.counts = true;
  rule.least = least;
  rule.most = most;
  return call(counter);
}

Grammar::Expression Grammar::call(Rule rule) {
  return add({.kind = Kind::kCall, .first = static_cast<std::uint32_t>(rule), .size = 1});
}

Grammar::Rule Grammar::declare(std::string name) {
  check_limit("the grammar has too many rules", rules_.size() + 1, kMaxRules);
  rules_.push_back({.name = std::move(name)});
  return static_cast<Rule>(rules_.size() - 1);
}

void Grammar::define(Rule rule, Expression body) {
  positions_ += at(body).size;
  check_limit("the grammar is too large", positions_, kMaxPositions);
  RuleBody& defined = rules_[static_cast<std::uint32_t>(rule)];
  defined.body = body;
  defined.defined = true;
}

bool Grammar::is_defined(Rule rule) const {
  return rules_[static_cast<std::uint32_t>(rule)].defined;
}

}  // namespace strata
