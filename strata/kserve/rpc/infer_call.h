/// Answers ModelInfer: one request, one answer.
#pragma once

#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>

#include <memory>

#include "inference.pb.h"
#include "strata/kserve/model/model_repository.h"

namespace strata {

/// Returns when the request is submitted. A client that leaves ends its request.
grpc::ServerUnaryReactor* start_infer_call(const ModelRepository& models,
                                           grpc::CallbackServerContext& context,
                                           const inference::ModelInferRequest& message,
                                           inference::ModelInferResponse& response,
                                           std::shared_ptr<ApiKey> key);

/// The status of an error. Adds the time after which a refused client may retry to the trailing
/// metadata: `retry-after` in seconds and `retry-after-ms`.
grpc::Status refused_call(grpc::CallbackServerContext& context, const ApiError& error);

}  // namespace strata
