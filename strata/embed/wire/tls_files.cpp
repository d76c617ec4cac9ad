#include "strata/embed/wire/tls_files.h"

#include <cstdlib>

#include "strata/base/errors.h"
#include "strata/base/random_access_file.h"
#include "strata/base/user_text.h"

namespace strata {
namespace {

std::string read_pem(const std::string& path, const std::string& what) {
  if (path.empty())
    throw UserError({.operation = "embed.tls",
                     .what = "TLS lacks " + what,
                     .expected = "certificate, key and authority",
                     .fix = "give all three files, or none"});
  return read_file(path, {.operation = "embed.tls", .fix = "name a file in PEM"}, 1 << 20);
}

bool is_local(const std::string& address) {
  return address.starts_with("unix:") || address.starts_with("127.") ||
         address.starts_with("localhost:") || address.starts_with("[::1]");
}

bool has_port(const std::string& address) {
  const std::size_t colon = address.rfind(':');
  return colon != std::string::npos && colon > 0 && colon + 1 < address.size() &&
         address.find_first_not_of("0123456789", colon + 1) == std::string::npos;
}

void require_address(const std::string& address) {
  if (is_server_address(address)) return;
  throw UserError({.operation = "embed.address",
                   .what = "this is no address of a server",
                   .expected = "HOST:PORT or unix:PATH",
                   .got = quote(address),
                   .fix = "write the port, too: 127.0.0.1:7001"});
}

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

bool is_server_address(const std::string& text) {
  return text.starts_with("unix:") ? text.size() > 5 : has_port(text);
}

void require_tls_beyond_machine(const std::string& address, const TlsFiles& tls) {
  require_address(address);
  if (tls.on() || is_local(address)) return;
  throw UserError({.operation = "embed.tls",
                   .where = address,
                   .what = "rows don't leave the machine without TLS",
                   .expected = "certificate, key and authority, or a local address",
                   .got = "none",
                   .fix = "name the three files in STRATA_TLS_CERTIFICATE, STRATA_TLS_KEY and "
                          "STRATA_TLS_AUTHORITY, or use 127.0.0.1:PORT or unix:PATH"});
}

TlsTexts read_tls(const TlsFiles& tls) {
  return {.certificate = read_pem(tls.certificate, "a certificate"),
          .key = read_pem(tls.key, "a key"),
          .authority = read_pem(tls.authority, "an authority")};
}

TlsFiles tls_from_environment() {
  return {.certificate = variable("STRATA_TLS_CERTIFICATE"),
          .key = variable("STRATA_TLS_KEY"),
          .authority = variable("STRATA_TLS_AUTHORITY")};
}

}  // namespace strata
