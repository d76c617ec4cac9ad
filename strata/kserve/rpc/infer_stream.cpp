#include "strata/kserve/rpc/infer_stream.h"

#include <string>
#include <utility>

#include "strata/kserve/rpc/messages.h"
#include "strata/openai/api_error.h"

namespace strata {
namespace {

constexpr std::size_t kMostQueuedBytes = std::size_t{256} << 10;
constexpr std::size_t kMostRunning = 1024;

}  // namespace

/// Hands gRPC's calls to the stream, and keeps it as long as gRPC may call.
class InferStream::Calls final : public Reactor {
 public:
  explicit Calls(std::shared_ptr<InferStream> stream) : stream_(std::move(stream)) {}
  void OnReadDone(bool ok) override { stream_->on_read(ok); }
  void OnWriteDone(bool ok) override { stream_->on_write(ok); }
  void OnCancel() override { stream_->on_cancel(); }
  void OnDone() override { delete this; }

 private:
  const std::shared_ptr<InferStream> stream_;
};

class InferStream::Sink final : public InferenceSink {
 public:
  Sink(std::shared_ptr<InferStream> stream, std::uint64_t number, InferenceHead head)
      : stream_(std::move(stream)), number_(number), head_(std::move(head)) {}
  bool on_answer(InferenceAnswer answer) override {
    inference::ModelStreamInferResponse response;
    const bool last = answer.last;
    write_answer(head_, std::move(answer), *response.mutable_infer_response());
    return stream_->answer(number_, std::move(response), last);
  }
  void on_error(const ApiError& error) override {
    inference::ModelStreamInferResponse response;
    response.set_error_message(error.parts().message);
    write_answer(head_, {.outputs = {}}, *response.mutable_infer_response());
    stream_->answer(number_, std::move(response), true);
  }

 private:
  const std::shared_ptr<InferStream> stream_;
  const std::uint64_t number_;
  const InferenceHead head_;
};

InferStream::Reactor* InferStream::start() {
  reactor_ = new Calls(shared_from_this());
  const std::scoped_lock lock(mutex_);
  read_more();
  return reactor_;
}

void InferStream::end_soon() {
  const std::scoped_lock lock(mutex_);
  ends_ = true;
  finish_if_idle();
}

void InferStream::on_read(bool ok) {
  if (ok) start_request();
  const std::scoped_lock lock(mutex_);
  ends_ = ends_ || !ok;
  read_more();
  finish_if_idle();
}

void InferStream::start_request() {
  std::uint64_t number = 0;
  {
    const std::scoped_lock lock(mutex_);
    if (over_) return;
    number = ++last_number_;
    running_[number] = nullptr;
  }
  const auto sink = std::make_shared<Sink>(
      shared_from_this(), number,
      InferenceHead{.model = incoming_.model_name(), .id = incoming_.id(), .streamed = true});
  std::function<void()> cancel;
  try {
    InferenceRequest request = read_infer_message(incoming_);
    request.key = key_;
    request.may_stream = true;
    cancel = models_->infer(std::move(request), sink);
  } catch (const std::exception& error) {
    return sink->on_error(ApiError::of(error));
  }
  {
    const std::scoped_lock lock(mutex_);
    if (const auto found = running_.find(number); found != running_.end())
      std::swap(found->second, cancel);
    else if (!over_)
      cancel = nullptr;  // the request has ended
  }
  if (cancel) cancel();  // the client left meanwhile
}

bool InferStream::answer(std::uint64_t number, inference::ModelStreamInferResponse response,
                         bool last) {
  const std::scoped_lock lock(mutex_);
  if (over_) return false;
  if (last) running_.erase(number);
  const std::size_t bytes = response.ByteSizeLong();
  queued_bytes_ += bytes;
  queue_.push_back({std::move(response), bytes});
  if (queue_.size() == 1) write_next();
  // Whole answers of many requests may end in one pass, before the client can read them.
  if (last || queued_bytes_ <= kMostQueuedBytes + queue_.front().bytes) return true;
  context_.TryCancel();  // on_cancel() follows
  return false;
}

void InferStream::on_write(bool ok) {
  const std::scoped_lock lock(mutex_);
  queued_bytes_ -= queue_.front().bytes;
  queue_.pop_front();
  if (!ok || over_) return;  // on_cancel() follows
  if (!queue_.empty()) write_next();
  if (paused_) read_more();
  finish_if_idle();
}

void InferStream::on_cancel() {
  std::map<std::uint64_t, std::function<void()>> running;
  {
    const std::scoped_lock lock(mutex_);
    running.swap(running_);
    if (!std::exchange(over_, true))
      reactor_->Finish(grpc::Status(grpc::StatusCode::CANCELLED, "the call was cancelled"));
  }
  for (const auto& [number, cancel] : running)
    if (cancel) cancel();
}

// The mutex is held in all below.
void InferStream::read_more() {
  if (ends_ || over_) return;
  paused_ = queued_bytes_ >= kMostQueuedBytes || running_.size() >= kMostRunning;
  if (!paused_) reactor_->StartRead(&incoming_);
}

void InferStream::write_next() { reactor_->StartWrite(&queue_.front().response); }

void InferStream::finish_if_idle() {
  if (!ends_ || over_ || !running_.empty() || !queue_.empty()) return;
  over_ = true;
  reactor_->Finish(grpc::Status::OK);
}

}  // namespace strata
