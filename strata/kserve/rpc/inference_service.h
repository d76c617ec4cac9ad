/// Answers the calls of KServe's gRPC service, without occupying a thread while a model computes.
///
/// Clients send their key as the metadata `authorization: Bearer KEY`; all calls need one but
/// ServerLive and ServerReady.
///
/// Threads  any.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "inference.grpc.pb.h"
#include "strata/kserve/rpc/infer_stream.h"

namespace strata {

class InferenceService final : public inference::GRPCInferenceService::CallbackService {
 public:
  InferenceService(std::shared_ptr<const ModelRepository> models, std::shared_ptr<const Keys> keys,
                   std::string version)
      : models_(std::move(models)), keys_(std::move(keys)), version_(std::move(version)) {}

  /// Streams end when their running requests have; the server is not ready any more.
  void drain();

 private:
  using Context = grpc::CallbackServerContext;
  using Reactor = grpc::ServerUnaryReactor;
  template <typename Write>
  Reactor* answer(Context* context, const Write& write) const;
  std::shared_ptr<ApiKey> key_of(const Context& context) const;  ///< ApiError 401
  bool draining();

  Reactor* ServerLive(Context* context, const inference::ServerLiveRequest* request,
                      inference::ServerLiveResponse* response) override;
  Reactor* ServerReady(Context* context, const inference::ServerReadyRequest* request,
                       inference::ServerReadyResponse* response) override;
  Reactor* ModelReady(Context* context, const inference::ModelReadyRequest* request,
                      inference::ModelReadyResponse* response) override;
  Reactor* ServerMetadata(Context* context, const inference::ServerMetadataRequest* request,
                          inference::ServerMetadataResponse* response) override;
  Reactor* ModelMetadata(Context* context, const inference::ModelMetadataRequest* request,
                         inference::ModelMetadataResponse* response) override;
  Reactor* ModelConfig(Context* context, const inference::ModelConfigRequest* request,
                       inference::ModelConfigResponse* response) override;
  Reactor* ModelStatistics(Context* context, const inference::ModelStatisticsRequest* request,
                           inference::ModelStatisticsResponse* response) override;
  Reactor* RepositoryIndex(Context* context, const inference::RepositoryIndexRequest* request,
                           inference::RepositoryIndexResponse* response) override;
  Reactor* ModelInfer(Context* context, const inference::ModelInferRequest* request,
                      inference::ModelInferResponse* response) override;
  InferStream::Reactor* ModelStreamInfer(Context* context) override;

  using Refused = inference::Refused;
  Reactor* refuse(Context* context, const char* what) const;
  Reactor* RepositoryModelLoad(Context* context, const Refused*, Refused*) override;
  Reactor* RepositoryModelUnload(Context* context, const Refused*, Refused*) override;
  Reactor* SystemSharedMemoryStatus(Context* context, const Refused*, Refused*) override;
  Reactor* SystemSharedMemoryRegister(Context* context, const Refused*, Refused*) override;
  Reactor* SystemSharedMemoryUnregister(Context* context, const Refused*, Refused*) override;
  Reactor* CudaSharedMemoryStatus(Context* context, const Refused*, Refused*) override;
  Reactor* CudaSharedMemoryRegister(Context* context, const Refused*, Refused*) override;
  Reactor* CudaSharedMemoryUnregister(Context* context, const Refused*, Refused*) override;
  Reactor* TraceSetting(Context* context, const Refused*, Refused*) override;
  Reactor* LogSettings(Context* context, const Refused*, Refused*) override;

  const std::shared_ptr<const ModelRepository> models_;
  const std::shared_ptr<const Keys> keys_;  // null: requests need no key
  const std::string version_;

  std::mutex mutex_;
  bool draining_ = false;
  std::vector<std::weak_ptr<InferStream>> streams_;
};

}  // namespace strata
