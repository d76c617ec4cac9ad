/// Cuts the text of a Jinja template into tokens, with the white space control of chat templates:
/// `trim_blocks` and `lstrip_blocks` are on, and one line end at the end of the template is
/// dropped.
///
/// Errors  UserError with the line and column: a tag or a quotation that does not end, an unknown
///         character.
/// Source  docs of Jinja 3.1, "White Space Control".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace strata {

struct JinjaPlace {
  int line = 1;
  int column = 1;
};

enum class JinjaTokenKind : std::uint8_t {
  kText,  ///< what lies between tags
  kBlockBegin,
  kBlockEnd,
  kPrintBegin,
  kPrintEnd,
  kName,
  kString,  ///< `text` has no quotation marks and no escapes
  kInteger,
  kFloat,
  kOperator,
  kEnd,
};

struct JinjaToken {
  JinjaTokenKind kind;
  std::string text;
  JinjaPlace place;
};

/// `name` stands for the template in errors. The last token is kEnd.
std::vector<JinjaToken> jinja_tokens(std::string_view text, const std::string& name);

[[noreturn]] void refuse_template(const std::string& name, JinjaPlace place,
                                  const std::string& what, const std::string& expected = "",
                                  const std::string& got = "");

}  // namespace strata
