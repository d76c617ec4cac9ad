// Sockets stay in blocking mode: the threads that carry messages wait in send and recv, which is
// faster than poll and then recv. Operations with a deadline poll first and pass MSG_DONTWAIT.
#include "strata/transport/socket.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>

#include "strata/base/errors.h"

namespace strata {
namespace {

constexpr std::uint32_t kMostTexts = 1 << 16;
constexpr std::size_t kGrowth = 1 << 16;        // bytes by which a received text grows
constexpr std::chrono::seconds kConnecting{5};  // for one of several addresses

void set(int descriptor, int level, int option, int value) {
  ::setsockopt(descriptor, level, option, &value, sizeof value);
}

bool await(int descriptor, short events, Deadline deadline) {
  pollfd waiting{.fd = descriptor, .events = events};
  int ready = 0;
  do {
    ready = ::poll(&waiting, 1, milliseconds_until(deadline));
  } while (ready < 0 && errno == EINTR);
  if (ready == 0) errno = ETIMEDOUT;
  return ready == 1;
}

// Sends or receives with `once` until done; waits for `events` before each call.
template <typename Once>
bool complete(int descriptor, short events, std::size_t count, Deadline deadline,
              const Once& once) {
  for (std::size_t done = 0; done < count;) {
    if (!await(descriptor, events, deadline)) return false;
    const ssize_t some = once(done);
    if (some < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (some <= 0) return false;
    done += static_cast<std::size_t>(some);
  }
  return true;
}

Socket connect_once(const HostAddress& address, Deadline deadline) {
  Socket socket(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (::connect(socket.get(), address.get(), address.length) != 0) {
    if (errno != EINPROGRESS || !await(socket.get(), POLLOUT, deadline)) return {};
    int error = 0;
    socklen_t size = sizeof error;
    ::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &size);
    if (error != 0) {
      errno = error;
      return {};
    }
  }
  ::fcntl(socket.get(), F_SETFL, ::fcntl(socket.get(), F_GETFL) & ~O_NONBLOCK);
  return socket;
}

Socket listen_with(Socket socket, const HostAddress& address) {
  set(socket.get(), SOL_SOCKET, SO_REUSEADDR, 1);
  if (::bind(socket.get(), address.get(), address.length) == 0 &&
      ::listen(socket.get(), SOMAXCONN) == 0)
    return socket;
  return {};
}

}  // namespace

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

bool Socket::send(const void* bytes, std::size_t count, Deadline deadline) const {
  return complete(descriptor_, POLLOUT, count, deadline, [&](std::size_t done) {
    return ::send(descriptor_, static_cast<const char*>(bytes) + done, count - done,
                  MSG_NOSIGNAL | MSG_DONTWAIT);
  });
}

bool Socket::receive(void* bytes, std::size_t count, Deadline deadline) const {
  return complete(descriptor_, POLLIN, count, deadline, [&](std::size_t done) {
    return ::recv(descriptor_, static_cast<char*>(bytes) + done, count - done, MSG_DONTWAIT);
  });
}

int Socket::receive_some(void* bytes, std::size_t count) const {
  const ssize_t got = ::recv(descriptor_, bytes, count, MSG_DONTWAIT);
  if (got > 0) return static_cast<int>(got);
  return got < 0 && (errno == EAGAIN || errno == EINTR) ? 0 : -1;
}

int Socket::port() const {
  sockaddr_storage own{};
  socklen_t length = sizeof own;
  ::getsockname(descriptor_, reinterpret_cast<sockaddr*>(&own), &length);
  // The port has the same offset in the addresses of both families.
  return ntohs(reinterpret_cast<const sockaddr_in*>(&own)->sin_port);
}

void Socket::set_up_for_messages() const {
  // The kernel chooses the buffer sizes.
  set(descriptor_, IPPROTO_TCP, TCP_NODELAY, 1);
  set(descriptor_, SOL_SOCKET, SO_KEEPALIVE, 1);
  set(descriptor_, IPPROTO_TCP, TCP_KEEPIDLE, 10);  // seconds
  set(descriptor_, IPPROTO_TCP, TCP_KEEPINTVL, 5);
  set(descriptor_, IPPROTO_TCP, TCP_KEEPCNT, 4);
  set(descriptor_, IPPROTO_TCP, TCP_USER_TIMEOUT, 30000);  // milliseconds
}

void Socket::shut_down() const {
  if (descriptor_ >= 0) ::shutdown(descriptor_, SHUT_RDWR);
}

Socket listen_at(const HostAddress& address) {
  return listen_with(Socket(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0)),
                     address);
}

Socket listen_everywhere(int port) {
  // One socket for both families, where the system has IPv6.
  HostAddress v6;
  auto* address6 = reinterpret_cast<sockaddr_in6*>(&v6.storage);
  address6->sin6_family = AF_INET6;
  address6->sin6_addr = in6addr_any;
  address6->sin6_port = htons(static_cast<std::uint16_t>(port));
  v6.length = sizeof *address6;
  Socket both(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  set(both.get(), IPPROTO_IPV6, IPV6_V6ONLY, 0);
  if (both) both = listen_with(std::move(both), v6);
  if (both) return both;
  HostAddress v4;
  auto* address4 = reinterpret_cast<sockaddr_in*>(&v4.storage);
  address4->sin_family = AF_INET;
  address4->sin_port = address6->sin6_port;
  v4.length = sizeof *address4;
  return listen_at(v4);
}

Socket connect_to(const std::vector<HostAddress>& addresses, Deadline deadline) {
  for (const HostAddress& address : addresses) {
    const Deadline own = std::min(deadline, std::chrono::steady_clock::now() + kConnecting);
    if (Socket socket = connect_once(address, own)) return socket;
  }
  return {};
}

int free_loopback_port() {
  HostAddress any;
  auto* address = reinterpret_cast<sockaddr_in*>(&any.storage);
  address->sin_family = AF_INET;
  address->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  any.length = sizeof *address;
  if (const Socket socket = listen_at(any)) return socket.port();
  throw SystemError({.operation = "transport.free_port",
                     .what = "this machine gives no port",
                     .got = std::strerror(errno),
                     .fix = "set MASTER_PORT"});
}

bool send_texts(const Socket& socket, const Texts& texts, Deadline deadline) {
  std::string bytes;
  const auto put = [&](std::size_t number) {
    const auto value = static_cast<std::uint32_t>(number);
    bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
  };
  put(texts.size());
  for (const std::string& text : texts) {
    put(text.size());
    bytes += text;
  }
  return socket.send(bytes.data(), bytes.size(), deadline);
}

std::optional<Texts> receive_texts(const Socket& socket, std::size_t most_bytes,
                                   Deadline deadline) {
  std::uint32_t count = 0;
  if (!socket.receive(&count, sizeof count, deadline) || count > kMostTexts) return std::nullopt;
  Texts texts;
  for (std::size_t total = 0; texts.size() < count;) {
    std::uint32_t size = 0;
    if (!socket.receive(&size, sizeof size, deadline)) return std::nullopt;
    total += size;
    if (total > most_bytes) return std::nullopt;
    std::string& text = texts.emplace_back();
    while (text.size() < size) {
      const std::size_t had = text.size(), some = std::min<std::size_t>(size - had, kGrowth);
      text.resize(had + some);
      if (!socket.receive(text.data() + had, some, deadline)) return std::nullopt;
    }
  }
  return texts;
}

}  // namespace strata
