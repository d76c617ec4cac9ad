/// Holds the names that a part of a template sees, and the state of rendering it.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "strata/jinja/lexer.h"
#include "strata/jinja/value.h"

namespace strata {

/// The names of one scope; those of the scopes around it are visible, too.
struct JinjaScope {
  std::shared_ptr<JinjaScope> around;
  std::map<std::string, JinjaValue> names;

  const JinjaValue* find(const std::string& name) const {
    for (const JinjaScope* scope = this; scope; scope = scope->around.get())
      if (const auto found = scope->names.find(name); found != scope->names.end())
        return &found->second;
    return nullptr;
  }
};

/// What rendering hands from node to node.
struct JinjaFrame {
  std::shared_ptr<JinjaScope> scope;
  const std::string& name;  ///< of the template, for errors
  JinjaMeter& meter;

  /// The same with a scope of its own inside.
  JinjaFrame inside() const {
    JinjaFrame frame = *this;
    frame.scope = std::make_shared<JinjaScope>();
    frame.scope->around = scope;
    return frame;
  }
};

/// Performs `step`, and gives a problem that it meets the place of the node.
template <typename Step>
auto at_place(const JinjaFrame& frame, JinjaPlace place, const Step& step) {
  try {
    return step();
  } catch (const JinjaProblem& problem) {
    refuse_template(frame.name, place, problem.what, problem.expected, problem.got);
  }
}

}  // namespace strata
