#include "strata/jinja/token_reader.h"

#include "strata/base/user_text.h"

namespace strata {

std::string JinjaTokenReader::described(const JinjaToken& token) {
  switch (token.kind) {
    case JinjaTokenKind::kText:
      return "text";
    case JinjaTokenKind::kBlockBegin:
      return "'{%'";
    case JinjaTokenKind::kBlockEnd:
      return "'%}'";
    case JinjaTokenKind::kPrintBegin:
      return "'{{'";
    case JinjaTokenKind::kPrintEnd:
      return "'}}'";
    case JinjaTokenKind::kEnd:
      return "the end of the template";
    case JinjaTokenKind::kName:
    case JinjaTokenKind::kString:
    case JinjaTokenKind::kInteger:
    case JinjaTokenKind::kFloat:
    case JinjaTokenKind::kOperator:
      break;
  }
  return quote(token.text);
}

}  // namespace strata
