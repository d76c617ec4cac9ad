#include "strata/rowserver/wire/server_access.h"

#include <cstdlib>

#include "strata/transport/secret.h"

namespace strata {
namespace {

const char* variable(const char* name) { return std::getenv(name); }

}  // namespace

std::string ServerAccess::call_secret() const {
  if (tls.on()) return "";
  return secret.empty() ? own_secret(variable) : secret;
}

ServerAccess access_from_environment() {
  const bool of_launch = variable(kLaunchSecretVariable) != nullptr;
  return {tls_from_environment(), of_launch ? "" : secret_from(variable)};
}

}  // namespace strata
