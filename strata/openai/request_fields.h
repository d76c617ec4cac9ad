/// Reads typed fields of the JSON object that is the body of a request. A field that is null counts
/// as missing.
///
/// Errors  ApiError 400 that names the field: not JSON, beyond the limits of
///         strata/base/json_document.h, another type, out of range.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace strata {

class RequestFields {
 public:
  /// `name` of the text, for errors.
  explicit RequestFields(const std::string& body, const std::string& name = "the body");

  explicit RequestFields(nlohmann::json object);

  /// The fields of a field that is an object; errors name them "stream_options.include_usage".
  RequestFields inner(const std::string& field) const;

  const nlohmann::json* find(const std::string& field) const;  ///< null if missing
  std::string place(const std::string& field) const { return prefix_ + field; }  ///< for errors
  const nlohmann::json& value() const { return *object_; }  ///< what the text holds
  /// A field that is a JSON Schema. Its members have the order of the body, which is parsed again,
  /// or are sorted by name if there is no body.
  /// Errors: UserError of strata/grammar/schema_text.h.
  nlohmann::ordered_json schema(const std::string& field) const;

  bool flag(const std::string& field, bool otherwise) const;
  std::int64_t whole(const std::string& field, std::int64_t otherwise, std::int64_t minimum,
                     std::int64_t maximum) const;
  double real(const std::string& field, double otherwise, double minimum, double maximum) const;
  std::string text(const std::string& field, const std::string& otherwise) const;
  /// One text is a list of one.
  std::vector<std::string> texts(const std::string& field) const;
  std::vector<std::int64_t> tokens(const std::string& field, std::int64_t vocabulary) const;

 private:
  RequestFields(std::shared_ptr<const nlohmann::json> object, std::string prefix,
                std::shared_ptr<const std::string> body)
      : object_(std::move(object)), prefix_(std::move(prefix)), body_(std::move(body)) {}
  std::shared_ptr<const nlohmann::json> object_;
  std::string prefix_;                       // "stream_options."
  std::shared_ptr<const std::string> body_;  // null: made from an object
};

/// A list of numbers of tokens; `place` names it in errors.
std::vector<std::int64_t> read_tokens(const nlohmann::json& list, const std::string& place,
                                      std::int64_t vocabulary);

/// The value in one short line, for errors.
std::string short_json(const nlohmann::json& value);

}  // namespace strata
