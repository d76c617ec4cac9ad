#include "strata/tokenizer/json.h"

#include "strata/base/errors.h"

namespace strata {

JsonPart JsonPart::member(const std::string& key) const {
  static const nlohmann::json kNull;
  const std::string place = place_.empty() ? key : place_ + "." + key;
  const bool there = value_->is_object() && value_->contains(key);
  return {there ? value_->at(key) : kNull, file_, place};
}

std::vector<JsonPart> JsonPart::elements() const {
  if (!value_->is_array()) refuse("a list", value_->type_name());
  std::vector<JsonPart> parts;
  for (std::size_t i = 0; i < value_->size(); ++i)
    parts.emplace_back((*value_)[i], file_, place_ + "[" + std::to_string(i) + "]");
  return parts;
}

std::string JsonPart::type() const { return text("type", ""); }

std::string JsonPart::text() const {
  if (!value_->is_string()) refuse("a text", value_->type_name());
  return value_->get<std::string>();
}

std::string JsonPart::text(const std::string& key, const std::string& otherwise) const {
  const JsonPart part = member(key);
  return part.is_null() ? otherwise : part.text();
}

bool JsonPart::flag(const std::string& key, bool otherwise) const {
  const JsonPart part = member(key);
  if (part.is_null()) return otherwise;
  if (!part.value_->is_boolean()) part.refuse("true or false", part.value_->type_name());
  return part.value_->get<bool>();
}

std::int64_t JsonPart::number() const {
  if (!value_->is_number_integer()) refuse("a whole number", value_->type_name());
  const auto number = value_->get<std::int64_t>();
  if (number < 0 || number > INT32_MAX) refuse("a number from 0", value_->dump());
  return number;
}

Pattern JsonPart::pattern() const {
  const JsonPart literal = member("String"), regex = member("Regex");
  const std::string where = file_ + ": " + place_;
  if (!literal.is_null()) return {literal.text(), Pattern::Kind::kLiteral, where};
  return {regex.text(), Pattern::Kind::kRegex, where};
}

void JsonPart::refuse(const std::string& expected, const std::string& got) const {
  throw UserError({.operation = "data.tokenizer",
                   .where = file_,
                   .what = place_ + " cannot be used",
                   .expected = expected,
                   .got = got,
                   .fix = "write a token file with the tokenizer's own library and set "
                          "data.tokenizer=none"});
}

std::vector<JsonPart> JsonPart::steps(const std::string& key) const {
  if (is_null()) return {};
  if (type() != "Sequence") return {*this};
  std::vector<JsonPart> all;
  for (const JsonPart& part : member(key).elements())
    for (const JsonPart& step : part.steps(key)) all.push_back(step);
  return all;
}

}  // namespace strata
