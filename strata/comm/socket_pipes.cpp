#include "strata/comm/socket_pipes.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <sstream>
#include <utility>

#include "strata/base/errors.h"

namespace strata {
namespace {

constexpr std::chrono::seconds kKnocking{5};  // who says nothing for so long is a stranger

struct Knock {
  std::uint64_t word = 0;
  std::int64_t process = 0;
};

// Buffers are left alone: the kernel sizes them better.
void tune(const Socket& socket) {
  const auto set = [&](int level, int option, int value) {
    ::setsockopt(socket.get(), level, option, &value, sizeof value);
  };
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, 10);  // seconds
  set(IPPROTO_TCP, TCP_KEEPINTVL, 5);
  set(IPPROTO_TCP, TCP_KEEPCNT, 4);
  set(IPPROTO_TCP, TCP_USER_TIMEOUT, 30000);  // milliseconds
}

class SocketPipes : public Pipes {
 public:
  SocketPipes(int process, std::vector<Socket> sockets)
      : process_(process), sockets_(std::move(sockets)) {}

  int process() const override { return process_; }
  int processes() const override { return static_cast<int>(sockets_.size()); }

  void send(int peer, const void* bytes, std::size_t count) override {
    if (!sockets_[peer].send(bytes, count)) throw PipeBroken(std::strerror(errno));
  }
  void receive(int peer, void* bytes, std::size_t count) override {
    if (!sockets_[peer].receive(bytes, count)) throw PipeBroken("closed");
  }
  void abort() override {
    for (const Socket& socket : sockets_)
      if (socket) ::shutdown(socket.get(), SHUT_RDWR);
  }

 private:
  int process_;
  std::vector<Socket> sockets_;
};

}  // namespace

Door::Door(int process, std::string address)
    : process_(process), address_(std::move(address)), socket_(listen_on(0, address_)) {
  if (!socket_ || ::getrandom(&word_, sizeof word_, 0) != sizeof word_) fail(std::strerror(errno));
}

std::string Door::note() const {
  return address_ + " " + std::to_string(socket_.port()) + " " + std::to_string(word_);
}

void Door::fail(const std::string& got) const {
  throw SystemError({.operation = "comm.join",
                     .where = "process " + std::to_string(process_),
                     .what = "the processes cannot be connected",
                     .expected = "connections between all, this one at " + address_,
                     .got = got,
                     .fix = "let TCP connections between the machines through the firewall"});
}

Socket Door::await_knock(int processes, int& peer, Deadline deadline) const {
  while (socket_.readable(deadline)) {
    Socket socket = socket_.accept();
    Knock knock;
    if (!socket || !socket.readable(std::chrono::steady_clock::now() + kKnocking) ||
        !socket.receive(&knock, sizeof knock))
      continue;
    if (knock.word != word_ || knock.process <= process_ || knock.process >= processes) continue;
    peer = static_cast<int>(knock.process);
    return socket;
  }
  return Socket();
}

std::unique_ptr<Pipes> Door::connect(const std::vector<std::string>& notes, Deadline deadline) {
  const int processes = static_cast<int>(notes.size());
  std::vector<Socket> sockets(notes.size());
  for (int peer = 0; peer < process_; ++peer) {
    std::istringstream words(notes[peer]);
    std::string address;
    int port = 0;
    Knock knock{.process = process_};
    words >> address >> port >> knock.word;
    do {
      sockets[peer] = connect_to(address, port);
      if (!sockets[peer]) ::poll(nullptr, 0, 20);
    } while (!sockets[peer] && milliseconds_until(deadline) > 0);
    if (!sockets[peer] || !sockets[peer].send(&knock, sizeof knock))
      fail("none to process " + std::to_string(peer) + " at " + address + ": " +
           std::strerror(errno));
  }
  for (int missing = processes - 1 - process_; missing > 0; --missing) {
    int peer = 0;
    Socket socket = await_knock(processes, peer, deadline);
    if (!socket) fail("none from " + std::to_string(missing) + " of the others");
    sockets[peer] = std::move(socket);
  }
  for (const Socket& socket : sockets)
    if (socket) tune(socket);
  return std::make_unique<SocketPipes>(process_, std::move(sockets));
}

}  // namespace strata
