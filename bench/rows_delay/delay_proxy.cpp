// Hands bytes on a while later, each way, to a server of loopback: a network with a delay and no
// loss.
//
// One thread for all connections, that wakes up when bytes come or are due: it shares the
// processors with what is measured.
//
//     delay_proxy MILLISECONDS TARGET_PORT...      prints the port that stands before each target
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <deque>
#include <memory>
#include <vector>

namespace {

constexpr std::int64_t kMillisecond = 1'000'000;

[[noreturn]] void fail(const char* what) {
  std::perror(what);
  std::exit(1);
}

int checked(int result, const char* what) {
  if (result < 0) fail(what);
  return result;
}

std::int64_t now() {  // nanoseconds
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * 1'000 * kMillisecond + time.tv_nsec;
}

sockaddr_in loopback(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

void tune(int socket) {
  const int on = 1;
  setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

struct Chunk {
  std::int64_t due = 0;
  std::vector<char> bytes;  // empty: the sender has ended
  std::size_t sent = 0;
};

// One way of a connection.
struct Way {
  int from, to;
  std::deque<Chunk> chunks = {};
  bool over = false;

  void read(std::int64_t delay) {
    while (!over) {
      const ssize_t got = recv(from, received.data(), received.size(), 0);
      if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
      over = got <= 0;
      chunks.push_back({now() + delay, {received.data(), received.data() + (over ? 0 : got)}});
    }
  }

  // Returns when the next chunk is due; -1: none, or the target takes no more for now.
  std::int64_t write() {
    while (!chunks.empty()) {
      Chunk& chunk = chunks.front();
      if (chunk.due > now()) return chunk.due;
      if (chunk.bytes.empty()) {
        shutdown(to, SHUT_WR);
      } else {
        const ssize_t sent = send(to, chunk.bytes.data() + chunk.sent,
                                  chunk.bytes.size() - chunk.sent, MSG_NOSIGNAL);
        if (sent < 0 && (errno == EAGAIN || errno == EINTR)) return -1;
        if (sent < 0) {  // the server is gone
          shutdown(from, SHUT_RD);
          chunks.clear();
          over = true;
          return -1;
        }
        chunk.sent += static_cast<std::size_t>(sent);
        if (chunk.sent < chunk.bytes.size()) continue;
      }
      chunks.pop_front();
    }
    return -1;
  }

  static inline std::vector<char> received = std::vector<char>(1 << 20);
};

struct Connection {
  int client, server;
  Way there, back;
  Connection(int c, int s) : client(c), server(s), there(c, s), back(s, c) {}
  ~Connection() {
    close(client);
    close(server);
  }
  bool over() const {
    return there.over && back.over && there.chunks.empty() && back.chunks.empty();
  }
};

struct Listener {
  int socket, target;
};

// On a port that it prints.
int listen_anywhere() {
  const int listener = checked(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), "socket");
  sockaddr_in address = loopback(0);
  checked(bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof address), "bind");
  checked(listen(listener, 16), "listen");
  socklen_t size = sizeof address;
  getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size);
  std::printf("%d\n", ntohs(address.sin_port));
  std::fflush(stdout);
  return listener;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: delay_proxy MILLISECONDS TARGET_PORT...\n");
    return 2;
  }
  const auto delay = static_cast<std::int64_t>(std::atof(argv[1]) * kMillisecond);
  const int poll = checked(epoll_create1(0), "epoll");
  const int timer = checked(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK), "timer");
  const auto watch = [&](int file, std::uint32_t events) {
    epoll_event event{};
    event.events = events;
    event.data.fd = file;
    checked(epoll_ctl(poll, EPOLL_CTL_ADD, file, &event), "epoll");
  };
  watch(timer, EPOLLIN);
  std::vector<Listener> listeners;
  for (int i = 2; i < argc; ++i) {
    const int target = std::atoi(argv[i]);
    listeners.push_back({listen_anywhere(), target});
    watch(listeners.back().socket, EPOLLIN);
  }
  std::vector<std::unique_ptr<Connection>> connections;
  // Edge-triggered: every wake-up looks at all connections, which are a handful.
  for (;;) {
    epoll_event events[64];
    const int ready = epoll_wait(poll, events, 64, -1);
    if (ready < 0 && errno != EINTR) fail("epoll_wait");
    std::uint64_t expirations = 0;
    [[maybe_unused]] const ssize_t none = ::read(timer, &expirations, sizeof expirations);
    for (const Listener& listener : listeners) {
      const int client = accept4(listener.socket, nullptr, nullptr, SOCK_NONBLOCK);
      if (client < 0) continue;
      const int server = checked(socket(AF_INET, SOCK_STREAM, 0), "socket");
      sockaddr_in address = loopback(listener.target);
      if (connect(server, reinterpret_cast<sockaddr*>(&address), sizeof address) < 0) {
        close(client);
        close(server);
        continue;
      }
      checked(fcntl(server, F_SETFL, O_NONBLOCK), "fcntl");
      tune(client);
      tune(server);
      connections.push_back(std::make_unique<Connection>(client, server));
      watch(client, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET);
      watch(server, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET);
    }
    std::int64_t next = -1;
    for (const auto& connection : connections)
      for (Way* way : {&connection->there, &connection->back}) {
        way->read(delay);
        const std::int64_t due = way->write();
        if (due >= 0 && (next < 0 || due < next)) next = due;
      }
    std::erase_if(connections, [](const auto& connection) { return connection->over(); });
    itimerspec at{};
    if (next >= 0) {
      at.it_value.tv_sec = next / (1'000 * kMillisecond);
      at.it_value.tv_nsec = next % (1'000 * kMillisecond);
    }
    timerfd_settime(timer, TFD_TIMER_ABSTIME, &at, nullptr);
  }
}
