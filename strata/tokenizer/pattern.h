/// Splits text at matches of a regular expression or a literal (PCRE2, Unicode classes), and reads
/// the common elements of a tokenizer.json: types, steps, patterns.
///
/// Threads  const, any thread.
/// Errors   UserError with file and place: a component of the wrong kind, an expression that PCRE2
///          cannot read or that exceeds its limits.
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

  /// `where` names the file and the place in it for errors.
  Pattern(const std::string& text, Kind kind, std::string where);

  /// Calls `part(text, matches)` for consecutive non-empty parts that cover the text. A byte that
  /// is not UTF-8 is a part of its own.
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

/// The components under `key` of a Sequence, or the component alone; none if null.
std::vector<JsonPart> steps_of(const JsonPart& component, const std::string& key);

Pattern pattern_of(const JsonPart& value);  ///< {"String": ...} or {"Regex": ...}

}  // namespace strata
