/// Reads values of a tokenizer.json and refuses, by their place in the file, those that can't be
/// honoured.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "strata/tokenizer/pattern.h"

namespace strata {

/// A value and its place: "tokenizer.json: pre_tokenizer.pretokenizers[1]". The document must
/// outlive it.
class JsonPart {
 public:
  JsonPart(const nlohmann::json& value, std::string file, std::string place)
      : value_(&value), file_(std::move(file)), place_(std::move(place)) {}

  const nlohmann::json& value() const { return *value_; }
  bool is_null() const { return value_->is_null(); }

  /// A member; null if there is none.
  JsonPart member(const std::string& key) const;
  std::vector<JsonPart> elements() const;

  std::string type() const;  ///< of a component; "" if it has none
  std::string text() const;
  std::string text(const std::string& key, const std::string& otherwise) const;
  bool flag(const std::string& key, bool otherwise) const;
  std::int64_t number() const;
  Pattern pattern() const;  ///< {"String": ...} or {"Regex": ...}

  /// A step of that kind exists and none of it is supported, or the value is of the wrong kind.
  [[noreturn]] void refuse(const std::string& expected, const std::string& got) const;

  /// Components of a Sequence whose members are under `key`, or the component alone; none if null.
  std::vector<JsonPart> steps(const std::string& key) const;

 private:
  const nlohmann::json* value_;
  std::string file_;
  std::string place_;
};

}  // namespace strata
