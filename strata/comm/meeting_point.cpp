#include "strata/comm/meeting_point.h"

#include <netdb.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "strata/base/errors.h"
#include "strata/comm/socket.h"

namespace strata {
namespace {

using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

Addresses resolve(const Rendezvous& rendezvous) {
  const std::string port = std::to_string(rendezvous.port);
  addrinfo hints{.ai_socktype = SOCK_STREAM};
  addrinfo* found = nullptr;
  const int failed = getaddrinfo(rendezvous.host.c_str(), port.c_str(), &hints, &found);
  if (failed)
    throw UserError({.operation = "comm.join",
                     .where = rendezvous.host + ":" + port,
                     .what = "the meeting point has no address",
                     .expected = "the host name or address of process 0",
                     .got = gai_strerror(failed),
                     .fix = "set MASTER_ADDR to a host that this machine can resolve"});
  return {found, &freeaddrinfo};
}

}  // namespace

void require_address(const Rendezvous& rendezvous) { resolve(rendezvous); }

std::string own_address(const Rendezvous& rendezvous) {
  const Addresses addresses = resolve(rendezvous);
  for (const addrinfo* at = addresses.get(); at; at = at->ai_next) {
    // Connecting a datagram socket sends nothing: it asks the routing table.
    const Socket socket(at->ai_family, SOCK_DGRAM);
    sockaddr_storage own{};
    socklen_t length = sizeof own;
    char text[NI_MAXHOST];
    if (::connect(socket.get(), at->ai_addr, at->ai_addrlen) == 0 &&
        ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&own), &length) == 0 &&
        ::getnameinfo(reinterpret_cast<const sockaddr*>(&own), length, text, sizeof text, nullptr,
                      0, NI_NUMERICHOST) == 0)
      return text;
  }
  return "127.0.0.1";
}

int free_loopback_port() {
  const Socket socket = listen_on(0, "127.0.0.1");
  if (socket) return socket.port();
  throw SystemError({.operation = "comm.free_port",
                     .what = "this machine gives no port",
                     .got = std::strerror(errno),
                     .fix = "set MASTER_PORT"});
}

}  // namespace strata
