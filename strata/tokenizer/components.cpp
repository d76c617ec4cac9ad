#include "strata/tokenizer/components.h"

namespace strata {

std::string type_of(const JsonPart& component) { return component.text("type", ""); }

std::vector<JsonPart> steps_of(const JsonPart& component, const std::string& key) {
  if (component.is_null()) return {};
  if (type_of(component) != "Sequence") return {component};
  std::vector<JsonPart> all;
  for (const JsonPart& part : component.member(key).elements())
    for (const JsonPart& step : steps_of(part, key)) all.push_back(step);
  return all;
}

Pattern pattern_of(const JsonPart& value) {
  const JsonPart literal = value.member("String"), regex = value.member("Regex");
  const std::string where = value.file() + ": " + value.place();
  if (!literal.is_null()) return {literal.text(), Pattern::Kind::kLiteral, where};
  return {regex.text(), Pattern::Kind::kRegex, where};
}

}  // namespace strata
