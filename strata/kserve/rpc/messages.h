/// Converts the messages of KServe's gRPC service from and to requests and answers of models.
///
/// Errors  ApiError 400 of requests.
#pragma once

#include <grpcpp/support/status.h>

#include <vector>

#include "inference.pb.h"
#include "strata/kserve/model/model_repository.h"

namespace strata {

/// Without the key. Tensors are raw bytes, or elements in typed lists; not both.
InferenceRequest read_infer_message(const inference::ModelInferRequest& message);

/// Writes tensors as raw bytes. To a client that reads several answers, states whether this is the
/// last one.
void write_answer(const InferenceHead& head, InferenceAnswer answer,
                  inference::ModelInferResponse& message);

void write_metadata(const ModelDescription& model, inference::ModelMetadataResponse& message);
void write_config(const ModelDescription& model, inference::ModelConfig& message);
void write_statistics(const std::vector<ModelRepository::Model>& models,
                      inference::ModelStatisticsResponse& message);
void write_index(const std::vector<IndexEntry>& index, inference::RepositoryIndexResponse& message);

/// Converts an error's HTTP status to a gRPC status.
grpc::Status status_of(const ApiError& error);

}  // namespace strata
