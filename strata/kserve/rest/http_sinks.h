/// Sends the answers of a model over HTTP: one, or a stream of server-sent events.
///
/// Threads  any.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "strata/kserve/model/inference_model.h"
#include "strata/openai/api_call.h"

namespace strata {

/// An error as clients of KServe read it: {"error": "..."}, with the status and headers of
/// OpenAI's routes.
HttpAnswer kserve_refusal(const ApiError& error);

/// Sends the only answer.
class HttpAnswerSink final : public InferenceSink {
 public:
  using Write = std::function<HttpAnswer(const InferenceAnswer&)>;
  HttpAnswerSink(ApiCall call, Write write) : call_(std::move(call)), write_(std::move(write)) {}
  bool on_answer(InferenceAnswer answer) override;
  void on_error(const ApiError& error) override { call_.answer(kserve_refusal(error)); }

 private:
  const ApiCall call_;
  const Write write_;
};

/// Writes an event for each answer. Events that come before begin() wait.
class EventSink final : public InferenceSink {
 public:
  using Write = std::function<std::string(const InferenceAnswer&)>;
  explicit EventSink(Write write) : write_(std::move(write)) {}
  void begin(std::shared_ptr<HttpStream> stream);
  bool on_answer(InferenceAnswer answer) override;
  void on_error(const ApiError& error) override;

 private:
  bool send(const std::string& json, bool last);

  const Write write_;
  std::mutex mutex_;
  std::shared_ptr<HttpStream> stream_;  // null before begin()
  std::string waiting_;
  bool ended_ = false;
};

}  // namespace strata
