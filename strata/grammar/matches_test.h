/// Matches texts in tests.
#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "strata/base/errors.h"
#include "strata/grammar/gbnf.h"
#include "strata/grammar/json_schema.h"
#include "strata/grammar/regex.h"
#include "strata/grammar/state_sets.h"

namespace strata {

using RootOf = std::function<Grammar::Expression(Grammar&)>;

inline std::shared_ptr<const Automaton> automaton_of(const RootOf& root) {
  Grammar grammar;
  return std::make_shared<const Automaton>(Automaton::compile(grammar, root(grammar)));
}

inline RootOf regex_root(std::string pattern, bool whole = true) {
  return
      [=](Grammar& grammar) { return read_regex(grammar, pattern, {.write = {}, .whole = whole}); };
}

inline RootOf schema_root(const std::string& schema) {
  return [schema = nlohmann::ordered_json::parse(schema)](Grammar& grammar) {
    return read_json_schema(grammar, schema);
  };
}

inline RootOf gbnf_root(std::string text) {
  return [=](Grammar& grammar) { return read_gbnf(grammar, text); };
}

class Matches {
 public:
  explicit Matches(const RootOf& root) : sets_(automaton_of(root)) {}

  bool operator()(std::string_view text) { return sets_.may_end(after(text)); }
  bool begins(std::string_view text) { return after(text) != StateSets::kDead; }

  StateSets& sets() { return sets_; }

 private:
  StateSets::State after(std::string_view text) {
    sets_.begin();
    StateSets::State state = sets_.start();
    for (const char byte : text) state = sets_.next(state, static_cast<unsigned char>(byte));
    return state;
  }
  StateSets sets_;
};

/// The error of a grammar that is refused; "" if it is not.
inline std::string refusal_of(const RootOf& root) {
  try {
    automaton_of(root);
    return "";
  } catch (const UserError& error) {
    return error.what();
  }
}

}  // namespace strata
