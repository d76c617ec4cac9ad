/// Answers one HTTP request in the shapes of OpenAI's API: JSON, error objects, a request id and
/// the limits of the key in the headers.
///
/// Threads  any; copies answer the same request.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "strata/http/routes.h"
#include "strata/openai/keys.h"

namespace strata {

class ApiError;

class ApiCall {
 public:
  ApiCall(HttpRequest request, std::shared_ptr<HttpResponder> responder);

  const HttpRequest& request() const { return *request_; }
  const std::string& id() const { return id_; }
  const std::shared_ptr<HttpResponder>& responder() const { return responder_; }

  std::shared_ptr<ApiKey> key;  ///< null: the server needs no keys

  void answer(const nlohmann::ordered_json& json) const;
  void answer(std::string text, std::string type) const;
  void answer_events(std::function<void(std::shared_ptr<HttpStream>)> write) const;
  void answer(HttpAnswer answer) const;  ///< adds the headers of every answer
  void refuse(const ApiError& error) const;

 private:
  std::shared_ptr<const HttpRequest> request_;
  std::shared_ptr<HttpResponder> responder_;
  std::string id_;
};

inline constexpr const char* kJsonType = "application/json";

/// The error object with its status and headers.
HttpAnswer answer_of(const ApiError& error);

/// 24 random hexadecimal digits.
std::string random_id();

/// The client's x-request-id if that is short and plain, else a random one.
std::string request_id(const HttpRequest& request);

}  // namespace strata
