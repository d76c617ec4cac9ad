#include "strata/transport/server_address.h"

#include <charconv>
#include <chrono>

#include "strata/base/error_source.h"
#include "strata/base/errors.h"
#include "strata/base/user_text.h"
#include "strata/transport/host_address.h"

namespace strata {
namespace {

constexpr int kLargestPort = 65535;
constexpr std::chrono::seconds kResolving{2};

constexpr ErrorSource kAddressErrors{"transport.address"};

[[noreturn]] void refuse_form(const std::string& text) {
  throw kAddressErrors.user("", "this is no address of a server", "HOST:PORT or unix:PATH",
                            quote(text), "write the port, too: 127.0.0.1:7001");
}

ServerAddress socket_address(const std::string& text) {
  const std::string path = text.substr(text.starts_with("unix://") ? 7 : 5);
  if (path.empty()) refuse_form(text);
  if (path.size() > kLongestSocketPath)
    throw kAddressErrors.user("", "the path of the unix socket is too long",
                              "at most " + std::to_string(kLongestSocketPath) + " bytes",
                              quote(text), "put the socket into a folder with a shorter path");
  return {.host = "", .path = path, .local = true};
}

int port_in(const std::string& text, const std::string& digits, FreePort free_port) {
  if (digits.empty() || digits.find_first_not_of("0123456789") != std::string::npos)
    refuse_form(text);
  int port = kLargestPort + 1;
  std::from_chars(digits.data(), digits.data() + digits.size(), port);
  const int least = free_port == FreePort::kYes ? 0 : 1;
  if (port < least || port > kLargestPort)
    throw kAddressErrors.user(
        "", "there is no such port",
        "a port from " + std::to_string(least) + " to " + std::to_string(kLargestPort), quote(text),
        "choose a port in that range: 127.0.0.1:7001");
  return port;
}

// Removes brackets. Refuses characters that gRPC would read as another kind of address.
std::string host_in(const std::string& text, std::string host) {
  if (host.empty()) refuse_form(text);
  if (host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
    if (host.empty() || host.find_first_not_of("0123456789abcdefABCDEF:.") != std::string::npos)
      refuse_form(text);
    return host;
  }
  if (host.find(':') != std::string::npos)
    throw kAddressErrors.user("", "the host has a colon", "HOST:PORT or unix:PATH", quote(text),
                              "write a number of IPv6 in brackets: [::1]:7001");
  for (const char c : host)
    if (c != '.' && c != '-' && c != '_' && !(c >= '0' && c <= '9') && !(c >= 'a' && c <= 'z') &&
        !(c >= 'A' && c <= 'Z'))
      refuse_form(text);
  return host;
}

// Only localhost and loopback numbers count as this machine: another name may resolve to a network
// address when gRPC resolves it. /etc/hosts may map even localhost to a network address.
bool stays_here(const std::string& host, int port) {
  if (!names_loopback(host)) return false;
  try {
    return all_loopback(resolve(host, port, std::chrono::steady_clock::now() + kResolving));
  } catch (const Error&) {
    return host == "localhost";  // without an entry it is loopback (RFC 6761)
  }
}

}  // namespace

std::string ServerAddress::target() const {
  if (is_socket()) return "unix:" + path;
  const bool brackets = host.find(':') != std::string::npos;
  return (brackets ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

ServerAddress parse_server_address(const std::string& text, FreePort free_port) {
  if (text.starts_with("unix:")) return socket_address(text);
  const std::size_t colon = text.rfind(':');
  if (colon == std::string::npos) refuse_form(text);
  ServerAddress address{.host = host_in(text, text.substr(0, colon)),
                        .port = port_in(text, text.substr(colon + 1), free_port)};
  address.local = stays_here(address.host, address.port);
  if (const std::string number = loopback_number(address.host); !number.empty())
    address.host = number;
  return address;
}

}  // namespace strata
