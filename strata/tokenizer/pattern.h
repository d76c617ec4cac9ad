/// Cuts text where a regular expression or a literal matches (PCRE2, Unicode classes), and reads
/// what the components of a tokenizer.json have in common: their type, their steps, their patterns.
///
/// Threads  const, any thread.
/// Errors   UserError by file and place: a component of the wrong kind, an expression that PCRE2
///          can't read or that exhausts its limits.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "strata/base/json_document.h"

namespace strata {

class Pattern {
 public:
  enum class Kind { kRegex, kLiteral };

  /// `where` goes into errors: the file and the place in it.
  Pattern(const std::string& text, Kind kind, std::string where);

  /// Calls `part(text, matches)` for consecutive parts that cover the text; none is empty. A byte
  /// that isn't UTF-8 is a part of its own.
  void split(std::string_view text, const std::function<void(std::string_view, bool)>& part) const;

  /// The text with every match replaced.
  std::string replace(std::string_view text, std::string_view by) const;

 private:
  struct Code;
  void split_utf8(std::string_view text,
                  const std::function<void(std::string_view, bool)>& part) const;

  std::string where_;
  std::shared_ptr<const Code> code_;
};

std::string type_of(const JsonPart& component);  ///< "" if it has none

/// Components of a Sequence whose members are under `key`, or the component alone; none if null.
std::vector<JsonPart> steps_of(const JsonPart& component, const std::string& key);

Pattern pattern_of(const JsonPart& value);  ///< {"String": ...} or {"Regex": ...}

}  // namespace strata
