#include "strata/comm/socket.h"

#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <memory>

namespace strata {
namespace {

constexpr std::uint32_t kMagic = 0x53747261;  // "Stra"
constexpr std::uint32_t kMostTexts = 1 << 16, kMostBytes = 64 << 20;

using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

Addresses addresses_of(const char* host, int port, int flags) {
  addrinfo hints{.ai_flags = flags, .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
  addrinfo* found = nullptr;
  if (getaddrinfo(host, std::to_string(port).c_str(), &hints, &found) != 0) found = nullptr;
  return {found, &freeaddrinfo};
}

bool receive_until(const Socket& socket, void* bytes, std::size_t count, Deadline deadline) {
  auto* at = static_cast<char*>(bytes);
  while (count > 0) {
    if (!socket.readable(deadline)) return false;
    const ssize_t got = ::recv(socket.get(), at, count, 0);
    if (got <= 0) return false;
    at += got;
    count -= static_cast<std::size_t>(got);
  }
  return true;
}

}  // namespace

int milliseconds_until(Deadline deadline) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
      deadline - std::chrono::steady_clock::now());
  return static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, 1 << 30));
}

Socket::Socket(int family, int type) : descriptor_(::socket(family, type | SOCK_CLOEXEC, 0)) {}

Socket::~Socket() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

bool Socket::send(const void* bytes, std::size_t count) const {
  const auto* at = static_cast<const char*>(bytes);
  while (count > 0) {
    const ssize_t sent = ::send(descriptor_, at, count, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    at += sent;
    count -= static_cast<std::size_t>(sent);
  }
  return true;
}

bool Socket::receive(void* bytes, std::size_t count) const {
  auto* at = static_cast<char*>(bytes);
  while (count > 0) {
    const ssize_t got = ::recv(descriptor_, at, count, MSG_WAITALL);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    at += got;
    count -= static_cast<std::size_t>(got);
  }
  return true;
}

int Socket::port() const {
  sockaddr_storage own{};
  socklen_t length = sizeof own;
  ::getsockname(descriptor_, reinterpret_cast<sockaddr*>(&own), &length);
  // The port has the same place in the addresses of both families.
  return ntohs(reinterpret_cast<const sockaddr_in*>(&own)->sin_port);
}

bool Socket::readable(Deadline deadline) const {
  pollfd waiting{.fd = descriptor_, .events = POLLIN};
  int ready = 0;
  do {
    ready = ::poll(&waiting, 1, milliseconds_until(deadline));
  } while (ready < 0 && errno == EINTR);
  return ready == 1;
}

Socket Socket::accept() const {
  return Socket(::accept4(descriptor_, nullptr, nullptr, SOCK_CLOEXEC));
}

Socket listen_on(int port, const std::string& address) {
  const Addresses addresses =
      addresses_of(address.empty() ? nullptr : address.c_str(), port, AI_PASSIVE);
  for (const addrinfo* at = addresses.get(); at; at = at->ai_next) {
    Socket socket(at->ai_family, SOCK_STREAM);
    const int yes = 1;
    ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (::bind(socket.get(), at->ai_addr, at->ai_addrlen) == 0 &&
        ::listen(socket.get(), SOMAXCONN) == 0)
      return socket;
  }
  return Socket();
}

Socket connect_to(const std::string& host, int port) {
  const Addresses addresses = addresses_of(host.c_str(), port, 0);
  for (const addrinfo* at = addresses.get(); at; at = at->ai_next) {
    Socket socket(at->ai_family, SOCK_STREAM);
    if (::connect(socket.get(), at->ai_addr, at->ai_addrlen) == 0) return socket;
  }
  return Socket();
}

bool send_texts(const Socket& socket, const Texts& texts) {
  std::string bytes;
  const auto put = [&](std::size_t number) {
    const auto value = static_cast<std::uint32_t>(number);
    bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
  };
  put(kMagic);
  put(texts.size());
  for (const std::string& text : texts) {
    put(text.size());
    bytes += text;
  }
  return socket.send(bytes.data(), bytes.size());
}

std::optional<Texts> receive_texts(const Socket& socket, Deadline deadline) {
  std::uint32_t magic = 0, count = 0;
  if (!receive_until(socket, &magic, sizeof magic, deadline) || magic != kMagic ||
      !receive_until(socket, &count, sizeof count, deadline) || count > kMostTexts)
    return std::nullopt;
  Texts texts(count);
  for (std::string& text : texts) {
    std::uint32_t size = 0;
    if (!receive_until(socket, &size, sizeof size, deadline) || size > kMostBytes)
      return std::nullopt;
    text.resize(size);
    if (!receive_until(socket, text.data(), size, deadline)) return std::nullopt;
  }
  return texts;
}

}  // namespace strata
