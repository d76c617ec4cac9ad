#include "strata/openai/api_call.h"

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>
#include <utility>

#include "strata/base/json_text.h"
#include "strata/openai/api_error.h"
#include "strata/transport/secret.h"

namespace strata {
namespace {

bool is_plain_id(std::string_view text) {
  return !text.empty() && text.size() <= 128 && std::ranges::all_of(text, [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.';
  });
}

}  // namespace

std::string random_id() { return make_secret().substr(0, 24); }

std::string request_id(const HttpRequest& request) {
  const std::string_view own = request.header("x-request-id");
  return is_plain_id(own) ? std::string(own) : "req-" + random_id();
}

ApiCall::ApiCall(HttpRequest request, std::shared_ptr<HttpResponder> responder)
    : request_(std::make_shared<const HttpRequest>(std::move(request))),
      responder_(std::move(responder)),
      id_(request_id(*request_)) {}

void ApiCall::answer(HttpAnswer answer) const {
  answer.headers.emplace_back("x-request-id", id_);
  if (key != nullptr)
    for (auto& header : key->headers()) answer.headers.push_back(std::move(header));
  responder_->answer(std::move(answer));
}

void ApiCall::answer(const nlohmann::ordered_json& json) const {
  answer(json_text(json), kJsonType);
}

void ApiCall::answer(std::string text, std::string type) const {
  answer(HttpAnswer{.status = 200, .body = std::move(text), .type = std::move(type)});
}

void ApiCall::answer_events(std::function<void(std::shared_ptr<HttpStream>)> write) const {
  answer(HttpAnswer{.status = 200,
                    .body = {},
                    .type = kEventStream,
                    .headers = {{"X-Accel-Buffering", "no"}},
                    .stream = std::move(write)});
}

void ApiCall::refuse(const ApiError& error) const { answer(answer_of(error)); }

HttpAnswer answer_of(const ApiError& error) {
  HttpAnswer answer{
      .status = error.parts().status, .body = json_text(error.json()), .type = kJsonType};
  if (const auto after = error.parts().retry_after.count(); after > 0) {
    answer.headers.emplace_back("Retry-After", std::to_string((after + 999) / 1000));
    answer.headers.emplace_back("retry-after-ms", std::to_string(after));
  }
  if (error.parts().status == 401) answer.headers.emplace_back("WWW-Authenticate", "Bearer");
  return answer;
}

}  // namespace strata
