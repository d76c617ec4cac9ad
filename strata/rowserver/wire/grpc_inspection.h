/// Asks a server of rows by gRPC about its rows.
///
/// Errors   as inspection.h; UserError: an address beyond the machine without TLS, certificates or
///          a secret that are not accepted, a feature's name that is not UTF-8. SystemError: the
///          server does not answer within `seconds`, or `stop` became true.
/// Example  const std::int64_t version = remote_inspection("localhost:7001", {})->digest().version;
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "strata/rowserver/wire/inspection.h"
#include "strata/rowserver/wire/server_access.h"

namespace strata {

struct RemoteInspectionOptions {
  double seconds = 10;                      ///< limit of each call
  const std::atomic<bool>* stop = nullptr;  ///< once true, calls end early; null: never
};

std::unique_ptr<RowInspection> remote_inspection(const std::string& address,
                                                 const ServerAccess& access,
                                                 RemoteInspectionOptions options = {});

}  // namespace strata
