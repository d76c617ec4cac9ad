#include "strata/openai/api_error.h"

#include <nlohmann/json.hpp>

#include "strata/base/errors.h"

namespace strata {
namespace {

nlohmann::ordered_json text_or_null(const std::string& text) {
  return text.empty() ? nlohmann::ordered_json(nullptr) : nlohmann::ordered_json(text);
}

// The parts of an error that concern a client: without places, which may be paths of this machine.
std::string client_message(const ErrorText& text) {
  std::string message = text.what;
  if (!text.expected.empty()) message += ": expected " + text.expected;
  if (!text.got.empty()) message += ", got " + text.got;
  return message;
}

}  // namespace

nlohmann::ordered_json ApiError::json() const {
  return {{"error",
           {{"message", parts_.message},
            {"type", parts_.type},
            {"param", text_or_null(parts_.param)},
            {"code", text_or_null(parts_.code)}}}};
}

ApiError ApiError::of(const std::exception& error) {
  if (const auto* api = dynamic_cast<const ApiError*>(&error)) return *api;
  const Error known = to_error(error);
  const std::string message = client_message(known.text());
  if (known.kind() == ErrorKind::kUser) return ApiError({.message = message});
  return ApiError({.status = 500, .message = message, .type = "server_error"});
}

void refuse_field(const std::string& param, const std::string& expected, const std::string& got) {
  throw ApiError({.message = "'" + param + "' must be " + expected + ", got " + got,
                  .param = param,
                  .code = "invalid_value"});
}

void refuse_without(const std::string& param, const std::string& needed) {
  throw ApiError(
      {.message = "'" + param + "' needs " + needed, .param = param, .code = "invalid_value"});
}

void refuse_unsupported(const std::string& param, const std::string& reason) {
  throw ApiError(
      {.message = "'" + param + "' is not supported" + (reason.empty() ? "" : ": " + reason),
       .param = param,
       .code = "unsupported_parameter"});
}

}  // namespace strata
