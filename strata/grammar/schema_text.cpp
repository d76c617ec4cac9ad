// The parser's own result finds each key among all others linearly, so a body with many keys would
// take minutes. These events store the members of the schema only, whose number is limited.
#include "strata/grammar/schema_text.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "strata/base/json_document.h"
#include "strata/base/user_text.h"
#include "strata/grammar/schema_keywords.h"

namespace strata {
namespace {

class SchemaEvents : public nlohmann::json_sax<SchemaJson> {
 public:
  explicit SchemaEvents(std::span<const std::string> path) : path_(path) {}

  SchemaJson take() { return std::move(schema_); }

  bool null() override { return store(nullptr), true; }
  bool boolean(bool value) override { return store(value), true; }
  bool number_integer(number_integer_t value) override { return store(value), true; }
  bool number_unsigned(number_unsigned_t value) override { return store(value), true; }
  bool number_float(number_float_t value, const string_t&) override { return store(value), true; }
  bool string(string_t& value) override { return store(std::move(value)), true; }
  bool binary(binary_t&) override { return false; }
  bool start_object(std::size_t) override { return begin(SchemaJson::object()); }
  bool start_array(std::size_t) override { return begin(SchemaJson::array()); }
  bool end_object() override { return end(); }
  bool end_array() override { return end(); }

  bool key(string_t& key) override {
    if (open_.empty())
      on_path_ = matched_ + 1 == depth_ && matched_ < path_.size() && key == path_[matched_];
    else
      key_ = std::move(key);
    return true;
  }

  bool parse_error(std::size_t, const std::string&,
                   const nlohmann::detail::exception& error) override {
    throw kSchemaErrors.user("", "the text is no JSON", "a JSON Schema", excerpt(error.what()));
  }

 private:
  // Returns where the value is kept; null: it is no part of the schema.
  SchemaJson* store(SchemaJson value) {
    const bool on_path = std::exchange(on_path_, false);
    if (open_.empty()) {
      if (!on_path || depth_ < path_.size()) return nullptr;
      values_ = 1;
      return &(schema_ = std::move(value));
    }
    SchemaJson& outer = *open_.back();
    SchemaJson& kept = outer.is_object() ? outer[key_] : outer.emplace_back();
    kept = std::move(value);
    check_schema_limits(outer, ++values_);
    return &kept;
  }

  bool begin(SchemaJson empty) {
    const bool on_path = on_path_;
    if (SchemaJson* kept = store(std::move(empty)))
      open_.push_back(kept);
    else if (on_path)
      matched_ = depth_;
    if (++depth_ > kMaxJsonDepth)
      throw kSchemaErrors.user("", "the schema is nested too deeply",
                               "at most " + std::to_string(kMaxJsonDepth) + " levels", "more");
    return true;
  }

  bool end() {
    --depth_;
    if (!open_.empty()) open_.pop_back();
    matched_ = std::min(matched_, depth_ > 0 ? depth_ - 1 : 0);
    return true;
  }

  const std::span<const std::string> path_;
  std::size_t depth_ = 0;          // objects and lists that are open
  std::size_t matched_ = 0;        // keys of the path whose values are open
  bool on_path_ = true;            // the next value continues the path
  std::vector<SchemaJson*> open_;  // of the schema
  std::string key_;                // of the next value
  std::size_t values_ = 0;
  SchemaJson schema_;
};

}  // namespace

nlohmann::ordered_json parse_schema(std::string_view text, std::span<const std::string> path) {
  SchemaEvents events(path);
  SchemaJson::sax_parse(text.begin(), text.end(), &events);
  return events.take();
}

}  // namespace strata
