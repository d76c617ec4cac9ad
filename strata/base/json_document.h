/// Reads JSON from other programs within limits, and names the place of every refused value.
///
///     const JsonDocument document = JsonDocument::read(path, {.operation = "data.open", ...});
///     const std::int64_t layers = document.root().member("n_layer").number();
///
/// Limits   64 MiB of text, 64 levels, 4 million values: at most about half a GB of memory, and
///          bounded recursion for all code that reads the document.
/// Errors   UserError that names file and place ("config.json: rope_parameters.factor"): not JSON,
///          beyond a limit, a member that is missing or of another kind. It quotes the refused
///          value in one short line.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "strata/base/random_access_file.h"

namespace strata {

/// A value and its place. Copies share the document.
class JsonPart {
 public:
  const nlohmann::json& value() const { return *value_; }
  bool is_null() const;
  const std::string& file() const;
  const std::string& place() const { return place_; }  ///< "model.vocab[3]"; "" at the root

  JsonPart member(std::string_view key) const;           ///< null if there is none
  JsonPart required_member(std::string_view key) const;  ///< throws UserError if there is none
  std::vector<JsonPart> elements() const;                ///< of a list
  std::vector<std::string> keys() const;                 ///< of an object

  std::string text() const;
  std::string text(std::string_view key, const std::string& otherwise) const;
  bool flag() const;
  bool flag(std::string_view key, bool otherwise) const;
  std::int64_t number(std::int64_t minimum = 0, std::int64_t maximum = INT64_MAX) const;
  double real() const;

  [[noreturn]] void refuse(const std::string& expected, const std::string& got) const;
  std::string quoted() const;  ///< the value in one short line

 private:
  friend class JsonDocument;
  struct Source;
  JsonPart(const nlohmann::json& value, std::shared_ptr<const Source> source, std::string place)
      : value_(&value), source_(std::move(source)), place_(std::move(place)) {}
  JsonPart at(const nlohmann::json& value, const std::string& step) const;

  const nlohmann::json* value_;
  std::shared_ptr<const Source> source_;
  std::string place_;
};

class JsonDocument {
 public:
  /// Reads a file that contains a JSON object.
  static JsonDocument read(const std::string& path, const FileUse& use);

  /// Parses a text that contains a JSON object; `name` stands for the file in errors.
  static JsonDocument parse(std::string_view text, const std::string& name, const FileUse& use);

  JsonPart root() const;

 private:
  explicit JsonDocument(std::shared_ptr<const JsonPart::Source> source)
      : source_(std::move(source)) {}
  std::shared_ptr<const JsonPart::Source> source_;
};

inline constexpr std::uint64_t kMaxJsonBytes = std::uint64_t{64} << 20;
inline constexpr int kMaxJsonDepth = 64;
inline constexpr std::int64_t kMaxJsonValues = 4'000'000;

}  // namespace strata
