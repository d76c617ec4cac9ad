// The system's resolver has no time limit. Names are therefore resolved in a separate thread, which
// is detached when the deadline passes: the process ends soon after. Numbers need no thread.
#include "strata/transport/host_address.h"

#include <netdb.h>
#include <netinet/in.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <future>
#include <memory>
#include <thread>

#include "strata/base/errors.h"

namespace strata {
namespace {

struct Lookup {
  int error = 0;
  std::vector<HostAddress> addresses;
};

Lookup look_up(const std::string& host, int port, int flags) {
  addrinfo hints{.ai_flags = flags, .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
  addrinfo* found = nullptr;
  Lookup lookup;
  lookup.error = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (lookup.error != 0) return lookup;
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, &freeaddrinfo);
  for (const addrinfo* at = found; at; at = at->ai_next) {
    HostAddress& address = lookup.addresses.emplace_back();
    std::memcpy(&address.storage, at->ai_addr, at->ai_addrlen);
    address.length = at->ai_addrlen;
  }
  return lookup;
}

}  // namespace

int milliseconds_until(Deadline deadline) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
      deadline - std::chrono::steady_clock::now());
  return static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, 1 << 30));
}

bool HostAddress::is_loopback() const {
  if (storage.ss_family == AF_INET) {
    const auto* v4 = reinterpret_cast<const sockaddr_in*>(&storage);
    return ntohl(v4->sin_addr.s_addr) >> 24 == 127;
  }
  if (storage.ss_family != AF_INET6) return false;
  const in6_addr& v6 = reinterpret_cast<const sockaddr_in6*>(&storage)->sin6_addr;
  return IN6_IS_ADDR_LOOPBACK(&v6) || (IN6_IS_ADDR_V4MAPPED(&v6) && v6.s6_addr[12] == 127);
}

std::string HostAddress::text() const {
  char name[NI_MAXHOST] = "";
  ::getnameinfo(get(), length, name, sizeof name, nullptr, 0, NI_NUMERICHOST);
  return name;
}

std::vector<HostAddress> resolve(const std::string& host, int port, Deadline deadline) {
  Lookup lookup = look_up(host, port, AI_NUMERICHOST);
  const std::string place = host + ":" + std::to_string(port);
  if (lookup.error != 0) {
    std::promise<Lookup> promise;
    std::future<Lookup> future = promise.get_future();
    std::thread([host, port, promise = std::move(promise)]() mutable {
      promise.set_value(look_up(host, port, 0));
    }).detach();
    if (future.wait_until(deadline) != std::future_status::ready)
      throw SystemError({.operation = "transport.join",
                         .where = place,
                         .what = "the name service does not answer",
                         .expected = "an address before the start is over",
                         .fix = "set MASTER_ADDR to an address instead of a name"});
    lookup = future.get();
  }
  if (lookup.error == 0 && !lookup.addresses.empty()) return std::move(lookup.addresses);
  throw UserError({.operation = "transport.join",
                   .where = place,
                   .what = "the host has no address",
                   .expected = "the host name or address of process 0",
                   .got = gai_strerror(lookup.error),
                   .fix = "set MASTER_ADDR to a host that this machine can resolve"});
}

bool all_loopback(const std::vector<HostAddress>& addresses) {
  return std::all_of(addresses.begin(), addresses.end(),
                     [](const HostAddress& address) { return address.is_loopback(); });
}

std::string loopback_number(const std::string& host) {
  const Lookup number = look_up(host, 0, AI_NUMERICHOST);
  const bool loopback = number.error == 0 && all_loopback(number.addresses);
  return loopback && !number.addresses.empty() ? number.addresses.front().text() : "";
}

bool names_loopback(const std::string& host) {
  return host == "localhost" || !loopback_number(host).empty();
}

std::string own_address(const std::vector<HostAddress>& addresses) {
  for (const HostAddress& address : addresses) {
    // Connecting a datagram socket sends nothing; it queries the routing table.
    const int descriptor = ::socket(address.storage.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    HostAddress own;
    own.length = sizeof own.storage;
    const bool known =
        ::connect(descriptor, address.get(), address.length) == 0 &&
        ::getsockname(descriptor, reinterpret_cast<sockaddr*>(&own.storage), &own.length) == 0;
    ::close(descriptor);
    if (known) return own.text();
  }
  return "127.0.0.1";
}

}  // namespace strata
