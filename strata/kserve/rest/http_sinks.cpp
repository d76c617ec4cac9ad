#include "strata/kserve/rest/http_sinks.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "strata/base/json_text.h"
#include "strata/openai/api_error.h"

namespace strata {
namespace {

std::string error_json(const ApiError& error) {
  return json_text(nlohmann::ordered_json{{"error", error.parts().message}});
}

}  // namespace

HttpAnswer kserve_refusal(const ApiError& error) {
  HttpAnswer answer = answer_of(error);
  answer.body = error_json(error);
  return answer;
}

bool HttpAnswerSink::on_answer(InferenceAnswer answer) {
  try {
    call_.answer(write_(answer));
  } catch (const std::exception& error) {
    on_error(ApiError::of(error));
  }
  return true;
}

void EventSink::begin(std::shared_ptr<HttpStream> stream) {
  const std::scoped_lock lock(mutex_);
  stream_ = std::move(stream);
  if (!waiting_.empty()) stream_->write(std::exchange(waiting_, {}));
  if (ended_) stream_->finish();
}

bool EventSink::send(const std::string& json, bool last) {
  std::string event = "data: " + json + "\n\n";
  const std::scoped_lock lock(mutex_);
  ended_ = last;
  if (stream_ == nullptr) {
    waiting_ += event;
    return true;
  }
  const bool there = stream_->write(std::move(event));
  if (last) stream_->finish();
  return there;
}

bool EventSink::on_answer(InferenceAnswer answer) {
  try {
    return send(write_(answer), answer.last);
  } catch (const std::exception& error) {
    on_error(ApiError::of(error));
    return false;
  }
}

void EventSink::on_error(const ApiError& error) { send(error_json(error), true); }

}  // namespace strata
