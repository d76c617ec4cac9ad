/// Listens for the calls of KServe's gRPC service (rpc/inference.proto).
///
/// A message may have 16 MiB, the messages and buffers of all calls together 512 MiB, the metadata
/// of a call 64 KiB. A connection has 128 calls at once and 10 s for the TLS handshake, and closes
/// after 5 minutes without a call. Messages are not compressed.
///
/// Threads  any.
/// Errors   UserError: an address where the server cannot listen; TLS files that cannot be read.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "strata/http/http_server.h"
#include "strata/kserve/model/model_repository.h"
#include "strata/transport/server_address.h"

namespace strata {

struct InferenceListen {
  ServerAddress address = {.host = "127.0.0.1"};  ///< port 0: any free port
  std::optional<HttpTls> tls = {};                ///< the files of the HTTP server
};

class InferenceServer {
 public:
  /// `keys`: null if requests need none. `version`: of the server.
  InferenceServer(const InferenceListen& listen, std::shared_ptr<const ModelRepository> models,
                  std::shared_ptr<const Keys> keys, std::string version);
  /// Ends all calls.
  ~InferenceServer();
  InferenceServer(const InferenceServer&) = delete;
  InferenceServer& operator=(const InferenceServer&) = delete;

  std::string address() const;  ///< "127.0.0.1:8001", with the actual port

  /// Refuses new calls, and waits until the running requests have ended; those that still run at
  /// the deadline are cancelled.
  void drain(std::chrono::system_clock::time_point deadline);

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace strata
