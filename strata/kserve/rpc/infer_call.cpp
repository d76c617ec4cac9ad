// The reactor lives until gRPC calls OnDone(), which follows Finish(). The sink may outlive it: a
// model keeps it until the request has ended.
#include "strata/kserve/rpc/infer_call.h"

#include <functional>
#include <mutex>
#include <string>
#include <utility>

#include "strata/kserve/rpc/messages.h"
#include "strata/openai/api_error.h"

namespace strata {
namespace {

class InferCall final : public grpc::ServerUnaryReactor {
 public:
  InferCall(grpc::CallbackServerContext& context, inference::ModelInferResponse& response)
      : context_(context), response_(response), sink_(std::make_shared<Sink>(*this)) {}

  // gRPC calls nothing of the reactor before this returns.
  void start(const ModelRepository& models, const inference::ModelInferRequest& message,
             std::shared_ptr<ApiKey> key) {
    try {
      InferenceRequest request = read_infer_message(message);
      request.key = std::move(key);
      sink_->head = head_of(request);
      cancel_ = models.infer(std::move(request), sink_);
    } catch (const std::exception& error) {
      sink_->on_error(ApiError::of(error));
    }
  }

  void OnCancel() override {
    sink_->finish(grpc::Status(grpc::StatusCode::CANCELLED, "the call was cancelled"));
    if (cancel_) cancel_();
  }
  void OnDone() override { delete this; }

 private:
  class Sink final : public InferenceSink {
   public:
    explicit Sink(InferCall& call) : call_(&call) {}

    bool on_answer(InferenceAnswer answer) override {
      const std::scoped_lock lock(mutex_);
      if (call_ == nullptr) return false;
      write_answer(head, std::move(answer), call_->response_);
      std::exchange(call_, nullptr)->Finish(grpc::Status::OK);
      return true;
    }
    void on_error(const ApiError& error) override {
      const std::scoped_lock lock(mutex_);
      if (call_ == nullptr) return;
      const grpc::Status status = refused_call(call_->context_, error);
      std::exchange(call_, nullptr)->Finish(status);
    }
    void finish(const grpc::Status& status) {
      const std::scoped_lock lock(mutex_);
      if (call_ != nullptr) std::exchange(call_, nullptr)->Finish(status);
    }

    InferenceHead head = {};

   private:
    std::mutex mutex_;
    InferCall* call_;  // null after Finish()
  };

  grpc::CallbackServerContext& context_;
  inference::ModelInferResponse& response_;
  const std::shared_ptr<Sink> sink_;
  std::function<void()> cancel_;
};

}  // namespace

grpc::ServerUnaryReactor* start_infer_call(const ModelRepository& models,
                                           grpc::CallbackServerContext& context,
                                           const inference::ModelInferRequest& message,
                                           inference::ModelInferResponse& response,
                                           std::shared_ptr<ApiKey> key) {
  auto* const call = new InferCall(context, response);  // deletes itself
  call->start(models, message, std::move(key));
  return call;
}

grpc::Status refused_call(grpc::CallbackServerContext& context, const ApiError& error) {
  if (const auto after = error.parts().retry_after.count(); after > 0) {
    context.AddTrailingMetadata("retry-after", std::to_string((after + 999) / 1000));
    context.AddTrailingMetadata("retry-after-ms", std::to_string(after));
  }
  return status_of(error);
}

}  // namespace strata
