/// Answers ModelStreamInfer: any number of requests, whose answers interleave, each with the id of
/// its request.
///
/// A request that cannot be answered gets an answer with error_message, and the stream continues. A
/// client that leaves ends its requests. While 256 KiB of answers are queued, the server reads no
/// further request, and a request that has more than its last answer to add ends the stream: the
/// client reads too slowly. The last answer of a request that already runs is queued in any case.
///
/// Threads  any.
#pragma once

#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>

#include "inference.pb.h"
#include "strata/kserve/model/model_repository.h"

namespace strata {

class InferStream : public std::enable_shared_from_this<InferStream> {
 public:
  using Reactor =
      grpc::ServerBidiReactor<inference::ModelInferRequest, inference::ModelStreamInferResponse>;

  InferStream(std::shared_ptr<const ModelRepository> models, grpc::CallbackServerContext& context,
              std::shared_ptr<ApiKey> key)
      : models_(std::move(models)), context_(context), key_(std::move(key)) {}

  /// Begins to read. The result deletes itself.
  Reactor* start();

  /// Ends the stream when the requests that run now have ended; later ones are not read.
  void end_soon();

 private:
  class Calls;
  class Sink;
  void on_read(bool ok);
  void on_write(bool ok);
  void on_cancel();
  void start_request();
  bool answer(std::uint64_t number, inference::ModelStreamInferResponse response, bool last);
  void read_more();
  void write_next();
  void finish_if_idle();

  struct Queued {
    inference::ModelStreamInferResponse response;
    std::size_t bytes;
  };

  const std::shared_ptr<const ModelRepository> models_;
  grpc::CallbackServerContext& context_;
  const std::shared_ptr<ApiKey> key_;
  Reactor* reactor_ = nullptr;
  inference::ModelInferRequest incoming_;  // gRPC writes it between StartRead() and on_read()

  std::mutex mutex_;
  std::map<std::uint64_t, std::function<void()>> running_;  // how to cancel each request
  std::uint64_t last_number_ = 0;
  std::deque<Queued> queue_;  // the first is being written
  std::size_t queued_bytes_ = 0;
  bool paused_ = false;  // no read is pending, because the queue is long
  bool ends_ = false;    // no further request is read
  bool over_ = false;    // Finish() was called, or the client has gone
};

}  // namespace strata
