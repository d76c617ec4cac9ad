#include "strata/kserve/rpc/inference_service.h"

#include "strata/kserve/model/refusals.h"
#include "strata/kserve/rpc/infer_call.h"
#include "strata/kserve/rpc/messages.h"
#include "strata/openai/api_error.h"

namespace strata {
namespace {

/// A stream that gets only a status.
class RefusedStream final : public InferStream::Reactor {
 public:
  explicit RefusedStream(const grpc::Status& status) { Finish(status); }
  void OnDone() override { delete this; }
};

}  // namespace

std::shared_ptr<ApiKey> InferenceService::key_of(const Context& context) const {
  if (keys_ == nullptr) return nullptr;
  const auto found = context.client_metadata().find("authorization");
  if (found == context.client_metadata().end()) return keys_->find("");
  return keys_->find({found->second.data(), found->second.size()});
}

template <typename Write>
InferenceService::Reactor* InferenceService::answer(Context* context, const Write& write) const {
  Reactor* const reactor = context->DefaultReactor();
  grpc::Status status = grpc::Status::OK;
  try {
    write();
  } catch (const std::exception& error) {
    status = refused_call(*context, ApiError::of(error));
  }
  reactor->Finish(status);
  return reactor;
}

bool InferenceService::draining() {
  const std::scoped_lock lock(mutex_);
  return draining_;
}

void InferenceService::drain() {
  std::vector<std::weak_ptr<InferStream>> streams;
  {
    const std::scoped_lock lock(mutex_);
    draining_ = true;
    streams.swap(streams_);
  }
  for (const auto& each : streams)
    if (const auto stream = each.lock()) stream->end_soon();
}

InferenceService::Reactor* InferenceService::ServerLive(Context* context,
                                                        const inference::ServerLiveRequest*,
                                                        inference::ServerLiveResponse* response) {
  return answer(context, [&] { response->set_live(true); });
}

InferenceService::Reactor* InferenceService::ServerReady(Context* context,
                                                         const inference::ServerReadyRequest*,
                                                         inference::ServerReadyResponse* response) {
  return answer(context, [&] { response->set_ready(!draining() && models_->ready()); });
}

InferenceService::Reactor* InferenceService::ModelReady(Context* context,
                                                        const inference::ModelReadyRequest* request,
                                                        inference::ModelReadyResponse* response) {
  return answer(context, [&] {
    response->set_ready(
        models_->find(request->name(), request->version(), key_of(*context))->ready());
  });
}

InferenceService::Reactor* InferenceService::ServerMetadata(
    Context* context, const inference::ServerMetadataRequest*,
    inference::ServerMetadataResponse* response) {
  return answer(context, [&] {
    key_of(*context);
    response->set_name("strata");
    response->set_version(version_);
    for (const char* extension : kKServeExtensions) response->add_extensions(extension);
  });
}

InferenceService::Reactor* InferenceService::ModelMetadata(
    Context* context, const inference::ModelMetadataRequest* request,
    inference::ModelMetadataResponse* response) {
  return answer(context, [&] {
    write_metadata(
        models_->find(request->name(), request->version(), key_of(*context))->description(),
        *response);
  });
}

InferenceService::Reactor* InferenceService::ModelConfig(
    Context* context, const inference::ModelConfigRequest* request,
    inference::ModelConfigResponse* response) {
  return answer(context, [&] {
    write_config(
        models_->find(request->name(), request->version(), key_of(*context))->description(),
        *response->mutable_config());
  });
}

InferenceService::Reactor* InferenceService::ModelStatistics(
    Context* context, const inference::ModelStatisticsRequest* request,
    inference::ModelStatisticsResponse* response) {
  return answer(context, [&] {
    const auto key = key_of(*context);
    if (request->name().empty())
      write_statistics(models_->visible(key), *response);
    else
      write_statistics({models_->find(request->name(), request->version(), key)}, *response);
  });
}

InferenceService::Reactor* InferenceService::RepositoryIndex(
    Context* context, const inference::RepositoryIndexRequest* request,
    inference::RepositoryIndexResponse* response) {
  return answer(
      context, [&] { write_index(models_->index(key_of(*context), request->ready()), *response); });
}

InferenceService::Reactor* InferenceService::ModelInfer(Context* context,
                                                        const inference::ModelInferRequest* request,
                                                        inference::ModelInferResponse* response) {
  try {
    return start_infer_call(*models_, *context, *request, *response, key_of(*context));
  } catch (const ApiError& error) {
    return answer(context, [&] { throw error; });
  }
}

InferStream::Reactor* InferenceService::ModelStreamInfer(Context* context) {
  try {
    const auto stream = std::make_shared<InferStream>(models_, *context, key_of(*context));
    const std::scoped_lock lock(mutex_);
    if (draining_)
      throw ApiError({.status = 503, .message = "the server is shutting down", .code = "draining"});
    std::erase_if(streams_, [](const auto& each) { return each.expired(); });
    streams_.push_back(stream);
    return stream->start();
  } catch (const ApiError& error) {
    return new RefusedStream(refused_call(*context, error));
  }
}

InferenceService::Reactor* InferenceService::refuse(Context* context, const char* what) const {
  return answer(context, [&] {
    key_of(*context);
    throw ApiError({.status = 501, .message = what, .code = "not_implemented"});
  });
}

InferenceService::Reactor* InferenceService::RepositoryModelLoad(Context* context, const Refused*,
                                                                 Refused*) {
  return refuse(context, kNoLoading);
}

InferenceService::Reactor* InferenceService::RepositoryModelUnload(Context* context, const Refused*,
                                                                   Refused*) {
  return refuse(context, kNoLoading);
}

InferenceService::Reactor* InferenceService::SystemSharedMemoryStatus(Context* context,
                                                                      const Refused*, Refused*) {
  return refuse(context, kNoSharedMemory);
}

InferenceService::Reactor* InferenceService::SystemSharedMemoryRegister(Context* context,
                                                                        const Refused*, Refused*) {
  return refuse(context, kNoSharedMemory);
}

InferenceService::Reactor* InferenceService::SystemSharedMemoryUnregister(Context* context,
                                                                          const Refused*,
                                                                          Refused*) {
  return refuse(context, kNoSharedMemory);
}

InferenceService::Reactor* InferenceService::CudaSharedMemoryStatus(Context* context,
                                                                    const Refused*, Refused*) {
  return refuse(context, kNoSharedMemory);
}

InferenceService::Reactor* InferenceService::CudaSharedMemoryRegister(Context* context,
                                                                      const Refused*, Refused*) {
  return refuse(context, kNoSharedMemory);
}

InferenceService::Reactor* InferenceService::CudaSharedMemoryUnregister(Context* context,
                                                                        const Refused*, Refused*) {
  return refuse(context, kNoSharedMemory);
}

InferenceService::Reactor* InferenceService::TraceSetting(Context* context, const Refused*,
                                                          Refused*) {
  return refuse(context, kNoTraces);
}

InferenceService::Reactor* InferenceService::LogSettings(Context* context, const Refused*,
                                                         Refused*) {
  return refuse(context, kNoLog);
}

}  // namespace strata
