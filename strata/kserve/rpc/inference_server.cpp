#include "strata/kserve/rpc/inference_server.h"

#include <grpc/support/log.h>
#include <grpcpp/resource_quota.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <cstdlib>
#include <utility>

#include "strata/base/error_source.h"
#include "strata/base/random_access_file.h"
#include "strata/kserve/rpc/inference_service.h"

namespace strata {
namespace {

constexpr int kMostMessageBytes = 16 << 20;
constexpr std::size_t kMostBytes = std::size_t{512} << 20;  // of all calls
constexpr int kMostMetadataBytes = 64 << 10;
constexpr int kMostCalls = 128;  // of a connection
constexpr int kHandshakeMilliseconds = 10'000;
constexpr int kIdleMilliseconds = 300'000;  // of a connection without a call
constexpr std::uint64_t kMostFileBytes = 1 << 20;

constexpr ErrorSource kListenErrors{"kserve.listen",
                                    "choose another port, or end the process that uses this one"};

// gRPC logs errors of clients, unless the user asks for its log.
void silence_log() {
  static const bool once = [] {
    if (!std::getenv("GRPC_VERBOSITY")) gpr_set_log_function([](gpr_log_func_args*) {});
    return true;
  }();
  static_cast<void>(once);
}

std::shared_ptr<grpc::ServerCredentials> credentials_of(const std::optional<HttpTls>& tls) {
  if (!tls) return grpc::InsecureServerCredentials();
  const FileUse use{.operation = "kserve.tls", .fix = "name a file in PEM"};
  grpc::SslServerCredentialsOptions options(GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE);
  options.pem_key_cert_pairs.push_back({read_file(tls->key_file, use, kMostFileBytes),
                                        read_file(tls->certificate_file, use, kMostFileBytes)});
  return grpc::SslServerCredentials(options);
}

// Bounds the memory and the time that a client can occupy.
void set_bounds(grpc::ServerBuilder& builder) {
  builder.SetMaxReceiveMessageSize(kMostMessageBytes);
  builder.SetMaxSendMessageSize(kMostMessageBytes);
  builder.SetResourceQuota(grpc::ResourceQuota("kserve").Resize(kMostBytes));
  builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, kMostMetadataBytes);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMostCalls);
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, kHandshakeMilliseconds);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS, kIdleMilliseconds);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 30'000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 10'000);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 5'000);
  for (const grpc_compression_algorithm algorithm : {GRPC_COMPRESS_DEFLATE, GRPC_COMPRESS_GZIP})
    builder.SetCompressionAlgorithmSupportStatus(algorithm, false);
}

}  // namespace

struct InferenceServer::Parts {
  InferenceService service;
  ServerAddress address;
  std::unique_ptr<grpc::Server> server = {};
};

InferenceServer::InferenceServer(const InferenceListen& listen,
                                 std::shared_ptr<const ModelRepository> models,
                                 std::shared_ptr<const Keys> keys, std::string version)
    : parts_(new Parts{.service = {std::move(models), std::move(keys), std::move(version)},
                       .address = listen.address}) {
  silence_log();
  grpc::ServerBuilder builder;
  ServerAddress& address = parts_->address;
  builder.AddListeningPort(address.target(), credentials_of(listen.tls), &address.port);
  builder.RegisterService(&parts_->service);
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  set_bounds(builder);
  parts_->server = builder.BuildAndStart();
  if (parts_->server == nullptr || address.port == 0)
    throw kListenErrors.user(listen.address.target(), "the server cannot listen there",
                             "an address of this machine with a free port",
                             "an address that another process has, or that is not here");
}

InferenceServer::~InferenceServer() { drain(std::chrono::system_clock::now()); }

std::string InferenceServer::address() const { return parts_->address.target(); }

void InferenceServer::drain(std::chrono::system_clock::time_point deadline) {
  parts_->service.drain();
  parts_->server->Shutdown(deadline);
}

}  // namespace strata
