/// Describes a refusal as clients of OpenAI's API expect it: a status and an error object.
#pragma once

#include <chrono>
#include <exception>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace strata {

struct ApiErrorParts {
  int status = 400;
  std::string message;
  std::string type = "invalid_request_error";
  std::string param = {};                   ///< the field; "" becomes null
  std::string code = {};                    ///< "" becomes null
  std::chrono::milliseconds retry_after{};  ///< 0: no Retry-After
};

class ApiError : public std::exception {
 public:
  explicit ApiError(ApiErrorParts parts) : parts_(std::move(parts)) {}
  const ApiErrorParts& parts() const { return parts_; }
  const char* what() const noexcept override { return parts_.message.c_str(); }

  /// {"error": {"message", "type", "param", "code"}}
  nlohmann::ordered_json json() const;

  /// Converts any exception: a UserError is status 400, others are 500.
  static ApiError of(const std::exception& error);

 private:
  ApiErrorParts parts_;
};

/// A field whose value cannot be used: "'top_p' must be a number from 0 to 1, got 3".
[[noreturn]] void refuse_field(const std::string& param, const std::string& expected,
                               const std::string& got);

/// A field that has no use without another one: "'top_logprobs' needs 'logprobs': true".
[[noreturn]] void refuse_without(const std::string& param, const std::string& needed);

/// A value or a field that Strata does not support: "'tools' is not supported".
[[noreturn]] void refuse_unsupported(const std::string& param, const std::string& reason);

}  // namespace strata
