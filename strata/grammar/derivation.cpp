#include "strata/grammar/derivation.h"

namespace strata {
namespace {

using Kind = Grammar::Kind;

// For every node those that contain it; a rule's body is contained in the calls of the rule.
std::vector<std::vector<std::uint32_t>> containers_of(const Grammar& grammar) {
  std::vector<std::vector<std::uint32_t>> containers(grammar.nodes().size());
  const auto contain = [&](Grammar::Expression part, std::uint32_t node) {
    containers[static_cast<std::uint32_t>(part)].push_back(node);
  };
  for (std::uint32_t i = 0; i < grammar.nodes().size(); ++i) {
    const Grammar::Node& node = grammar.nodes()[i];
    if (node.kind == Kind::kLoop) contain(static_cast<Grammar::Expression>(node.first), i);
    if (node.kind == Kind::kSequence || node.kind == Kind::kChoice)
      for (const Grammar::Expression part : grammar.parts(node)) contain(part, i);
    if (node.kind == Kind::kCall && grammar.rules()[node.first].defined)
      contain(grammar.rules()[node.first].body, i);
  }
  return containers;
}

// How many of its parts a node needs; 0: none.
std::uint32_t needed_parts(const Grammar& grammar, const Grammar::Node& node, Derivation what) {
  switch (node.kind) {
    case Kind::kBytes:
      return what == Derivation::kSomeText && grammar.sets()[node.first].any() ? 0 : 1;
    case Kind::kSequence:
      return node.count;
    case Kind::kCall: {
      const Grammar::RuleBody& rule = grammar.rules()[node.first];
      return rule.counts && rule.least == 0 ? 0 : 1;
    }
    default:
      return 1;
  }
}

}  // namespace

std::vector<bool> derive(const Grammar& grammar, Derivation what) {
  const auto containers = containers_of(grammar);
  std::vector<std::uint32_t> missing;
  std::vector<std::uint32_t> todo;
  std::vector<bool> derived(grammar.nodes().size());
  for (std::uint32_t i = 0; i < grammar.nodes().size(); ++i) {
    missing.push_back(needed_parts(grammar, grammar.nodes()[i], what));
    if (missing.back() == 0) {
      derived[i] = true;
      todo.push_back(i);
    }
  }
  while (!todo.empty()) {
    const std::uint32_t node = todo.back();
    todo.pop_back();
    for (const std::uint32_t container : containers[node]) {
      if (derived[container] || --missing[container] > 0) continue;
      derived[container] = true;
      todo.push_back(container);
    }
  }
  return derived;
}

}  // namespace strata
