#include "strata/openai/request_fields.h"

#include <cmath>
#include <sstream>
#include <utility>

#include "strata/base/errors.h"
#include "strata/base/json_document.h"
#include "strata/base/json_text.h"
#include "strata/base/units.h"
#include "strata/base/user_text.h"
#include "strata/grammar/schema_text.h"
#include "strata/openai/api_error.h"

namespace strata {
namespace {

const FileUse kBody{.operation = "openai.request", .fix = "send a JSON object"};

std::shared_ptr<const nlohmann::json> parsed(const std::string& body, const std::string& name) {
  try {
    const auto root =
        std::make_shared<const JsonPart>(JsonDocument::parse(body, name, kBody).root());
    return {root, &root->value()};
  } catch (const UserError& error) {
    const ErrorText& text = error.text();
    throw ApiError({.message = name + " cannot be used: " + text.what + ": expected " +
                               text.expected + ", got " + text.got,
                    .code = "invalid_json"});
  }
}

// A whole number, also if it is written as 5.0.
std::optional<std::int64_t> whole_of(const nlohmann::json& value) {
  if (value.is_number_unsigned()) {
    const auto number = value.get<std::uint64_t>();
    return number <= std::uint64_t{INT64_MAX} ? std::optional(static_cast<std::int64_t>(number))
                                              : std::nullopt;
  }
  if (value.is_number_integer()) return value.get<std::int64_t>();
  if (!value.is_number_float()) return std::nullopt;
  const double number = value.get<double>();
  const bool fits = std::abs(number) <= 9007199254740992.0 && number == std::trunc(number);
  return fits ? std::optional(static_cast<std::int64_t>(number)) : std::nullopt;
}

std::string range_text(const std::string& minimum, const std::string& maximum) {
  return "from " + minimum + " to " + maximum;
}

}  // namespace

RequestFields::RequestFields(const std::string& body, const std::string& name)
    : object_(parsed(body, name)), body_(std::make_shared<const std::string>(body)) {}

RequestFields::RequestFields(nlohmann::json object)
    : object_(std::make_shared<const nlohmann::json>(std::move(object))) {}

const nlohmann::json* RequestFields::find(const std::string& field) const {
  const auto found = object_->find(field);
  return found == object_->end() || found->is_null() ? nullptr : &*found;
}

RequestFields RequestFields::inner(const std::string& field) const {
  const nlohmann::json* object = find(field);
  if (object == nullptr || !object->is_object())
    refuse_field(place(field), "an object", object == nullptr ? "null" : short_json(*object));
  return {{object_, object}, place(field) + '.', body_};
}

nlohmann::ordered_json RequestFields::schema(const std::string& field) const {
  if (body_ == nullptr) return parse_schema(json_text(value().at(field)));
  std::vector<std::string> path;
  std::istringstream steps(place(field));
  for (std::string step; std::getline(steps, step, '.');) path.push_back(step);
  return parse_schema(*body_, path);
}

bool RequestFields::flag(const std::string& field, bool otherwise) const {
  const nlohmann::json* value = find(field);
  if (value == nullptr) return otherwise;
  if (!value->is_boolean()) refuse_field(place(field), "true or false", short_json(*value));
  return value->get<bool>();
}

std::int64_t RequestFields::whole(const std::string& field, std::int64_t otherwise,
                                  std::int64_t minimum, std::int64_t maximum) const {
  const nlohmann::json* value = find(field);
  if (value == nullptr) return otherwise;
  const auto number = whole_of(*value);
  if (!number || *number < minimum || *number > maximum)
    refuse_field(place(field),
                 "a whole number " + range_text(std::to_string(minimum), std::to_string(maximum)),
                 short_json(*value));
  return *number;
}

double RequestFields::real(const std::string& field, double otherwise, double minimum,
                           double maximum) const {
  const nlohmann::json* value = find(field);
  if (value == nullptr) return otherwise;
  const double number = value->is_number() ? value->get<double>() : NAN;
  if (!(number >= minimum && number <= maximum))
    refuse_field(
        place(field),
        "a number " + range_text(format_double_exactly(minimum), format_double_exactly(maximum)),
        short_json(*value));
  return number;
}

std::string RequestFields::text(const std::string& field, const std::string& otherwise) const {
  const nlohmann::json* value = find(field);
  if (value == nullptr) return otherwise;
  if (!value->is_string()) refuse_field(place(field), "a text", short_json(*value));
  return value->get<std::string>();
}

std::vector<std::string> RequestFields::texts(const std::string& field) const {
  const nlohmann::json* value = find(field);
  if (value == nullptr) return {};
  if (value->is_string()) return {value->get<std::string>()};
  if (!value->is_array())
    refuse_field(place(field), "a text or a list of texts", short_json(*value));
  std::vector<std::string> texts;
  for (const nlohmann::json& each : *value) {
    if (!each.is_string())
      refuse_field(place(field), "a text or a list of texts", short_json(*value));
    texts.push_back(each.get<std::string>());
  }
  return texts;
}

std::vector<std::int64_t> RequestFields::tokens(const std::string& field,
                                                std::int64_t vocabulary) const {
  const nlohmann::json* value = find(field);
  return value == nullptr ? std::vector<std::int64_t>{}
                          : read_tokens(*value, place(field), vocabulary);
}

std::vector<std::int64_t> read_tokens(const nlohmann::json& list, const std::string& place,
                                      std::int64_t vocabulary) {
  if (!list.is_array()) refuse_field(place, "a list of tokens", short_json(list));
  std::vector<std::int64_t> tokens;
  tokens.reserve(list.size());
  for (const nlohmann::json& each : list) {
    const auto token = whole_of(each);
    if (!token || *token < 0 || *token >= vocabulary)
      refuse_field(place, "a list of tokens from 0 to " + std::to_string(vocabulary - 1),
                   short_json(each));
    tokens.push_back(*token);
  }
  return tokens;
}

std::string short_json(const nlohmann::json& value) {
  if (value.is_structured() && value.size() > kLongestQuotation)
    return std::string(value.type_name()) + " of " + std::to_string(value.size());
  return excerpt(json_text(value));
}

}  // namespace strata
