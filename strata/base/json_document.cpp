// The parser of nlohmann-json accepts any depth, but printing and comparing its result recurse, so
// a deep document would overflow the stack. Therefore the text is measured before parsing: its
// brackets and commas bound depth and number of values.
#include "strata/base/json_document.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "strata/base/errors.h"
#include "strata/base/units.h"
#include "strata/base/user_text.h"

namespace strata {

struct JsonPart::Source {
  std::string file;
  FileUse use;
  nlohmann::json value;
};

namespace {

struct Extent {
  std::int64_t depth = 0;
  std::int64_t values = 1;  // upper bound; exact except for empty lists and objects
};

Extent extent_of(std::string_view text) {
  Extent extent;
  std::int64_t depth = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      in_string = c != '"';
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      extent.depth = std::max(extent.depth, ++depth);
      ++extent.values;
    } else if (c == ']' || c == '}') {
      --depth;
    } else if (c == ',') {
      ++extent.values;
    }
  }
  return extent;
}

}  // namespace

JsonDocument JsonDocument::read(const std::string& path, const FileUse& use) {
  return parse(read_file(path, use, kMaxJsonBytes), path, use);
}

JsonDocument JsonDocument::parse(std::string_view text, const std::string& name,
                                 const FileUse& use) {
  if (text.size() > kMaxJsonBytes) {
    use.refuse(name, "the JSON is too large",
               "at most " + format_bytes(static_cast<std::int64_t>(kMaxJsonBytes)),
               format_bytes(static_cast<std::int64_t>(text.size())));
  }
  const Extent extent = extent_of(text);
  if (extent.depth > kMaxJsonDepth) {
    use.refuse(name, "the JSON is nested too deeply",
               "at most " + std::to_string(kMaxJsonDepth) + " levels",
               std::to_string(extent.depth));
  }
  if (extent.values > kMaxJsonValues) {
    use.refuse(name, "the JSON has too many values", "at most " + std::to_string(kMaxJsonValues),
               std::to_string(extent.values));
  }
  auto source = std::make_shared<JsonPart::Source>();
  source->file = name;
  source->use = use;
  try {
    source->value = nlohmann::json::parse(text.begin(), text.end());
  } catch (const nlohmann::json::exception& error) {
    use.refuse(name, "this is no JSON document", "a JSON object", excerpt(error.what()));
  }
  if (!source->value.is_object()) {
    use.refuse(name, "this is no JSON object", "{...}", excerpt(source->value.type_name()));
  }
  return JsonDocument(std::move(source));
}

JsonPart JsonDocument::root() const { return {source_->value, source_, ""}; }

bool JsonPart::is_null() const { return value_->is_null(); }

const std::string& JsonPart::file() const { return source_->file; }

JsonPart JsonPart::at(const nlohmann::json& value, const std::string& step) const {
  const bool dot = !place_.empty() && !step.starts_with('[');
  return {value, source_, place_ + (dot ? "." : "") + step};
}

JsonPart JsonPart::member(std::string_view key) const {
  static const nlohmann::json kNull;
  if (!value_->is_object()) return at(kNull, excerpt(key));
  const auto found = value_->find(key);
  return at(found == value_->end() ? kNull : *found, excerpt(key));
}

JsonPart JsonPart::required_member(std::string_view key) const {
  JsonPart part = member(key);
  if (part.is_null()) part.refuse("a value", "none");
  return part;
}

std::vector<JsonPart> JsonPart::elements() const {
  if (!value_->is_array()) refuse("a list", value_->type_name());
  std::vector<JsonPart> parts;
  parts.reserve(value_->size());
  for (std::size_t i = 0; i < value_->size(); ++i)
    parts.push_back(at((*value_)[i], "[" + std::to_string(i) + "]"));
  return parts;
}

std::vector<std::string> JsonPart::keys() const {
  if (!value_->is_object()) refuse("an object", value_->type_name());
  std::vector<std::string> keys;
  keys.reserve(value_->size());
  for (const auto& [key, value] : value_->items()) keys.push_back(key);
  return keys;
}

std::string JsonPart::text() const {
  if (!value_->is_string()) refuse("a text", quoted());
  return value_->get<std::string>();
}

std::string JsonPart::text(std::string_view key, const std::string& otherwise) const {
  const JsonPart part = member(key);
  return part.is_null() ? otherwise : part.text();
}

bool JsonPart::flag() const {
  if (!value_->is_boolean()) refuse("true or false", quoted());
  return value_->get<bool>();
}

bool JsonPart::flag(std::string_view key, bool otherwise) const {
  const JsonPart part = member(key);
  return part.is_null() ? otherwise : part.flag();
}

std::int64_t JsonPart::number(std::int64_t minimum, std::int64_t maximum) const {
  const std::string range =
      maximum == INT64_MAX
          ? "a whole number from " + std::to_string(minimum)
          : "a whole number from " + std::to_string(minimum) + " to " + std::to_string(maximum);
  if (!value_->is_number_integer()) refuse(range, quoted());
  const bool fits =
      !value_->is_number_unsigned() || value_->get<std::uint64_t>() <= std::uint64_t{INT64_MAX};
  const std::int64_t number = fits ? value_->get<std::int64_t>() : -1;
  if (!fits || number < minimum || number > maximum) refuse(range, quoted());
  return number;
}

double JsonPart::real() const {
  if (!value_->is_number()) refuse("a number", quoted());
  return value_->get<double>();
}

std::string JsonPart::quoted() const {
  // Do not print a long value only to cut it.
  if (value_->is_structured() && value_->size() > kLongestQuotation) {
    return std::string(value_->type_name()) + " of " + std::to_string(value_->size());
  }
  return excerpt(value_->dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

void JsonPart::refuse(const std::string& expected, const std::string& got) const {
  source_->use.refuse(source_->file,
                      (place_.empty() ? "the document" : excerpt(place_)) + " cannot be used",
                      expected, excerpt(got));
}

}  // namespace strata
