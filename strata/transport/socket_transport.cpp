// Each process connects to the earlier ones and accepts the later ones. A separate thread accepts,
// because a connecting process waits for the other's part of the handshake: in sequence, the
// processes would wait in a chain.
#include "strata/transport/transport.h"

#include <poll.h>

#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <optional>
#include <sstream>
#include <system_error>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "strata/base/errors.h"
#include "strata/transport/join.h"
#include "strata/transport/peer_memory.h"

namespace strata {
namespace {

struct SocketHeader {
  std::uint64_t payload_bytes = 0;
  MessageHeader header;
};
static_assert(std::is_trivially_copyable_v<SocketHeader> && sizeof(SocketHeader) == 1024);

// The payload of one message; bytes that arrived() does not receive are read and dropped.
class SocketPayload final : public IncomingPayload {
 public:
  SocketPayload(const Socket& socket, std::uint64_t left) : socket_(socket), left_(left) {}
  void receive(void* to, std::size_t count) override {
    STRATA_CHECK(count <= left_, "transport.receive");
    if (!socket_.receive(to, count)) throw TransportBroken("closed");
    left_ -= count;
  }
  void drop_rest() {
    char rest[4096];
    while (left_ > 0) receive(rest, std::min<std::uint64_t>(left_, sizeof rest));
  }

 private:
  const Socket& socket_;
  std::uint64_t left_;
};

class SocketTransport final : public Transport {
 public:
  SocketTransport(int process, std::vector<Socket> sockets, std::vector<pid_t> same_host)
      : process_(process), same_host_(std::move(same_host)) {
    for (Socket& socket : sockets) {
      peers_.push_back(socket ? std::make_unique<Peer>() : nullptr);
      if (socket) peers_.back()->socket = std::move(socket);
    }
  }
  ~SocketTransport() override { abort(); }

  int process() const override { return process_; }
  int processes() const override { return static_cast<int>(peers_.size()); }

  void start(TransportReceiver& receiver) override {
    receiver_ = &receiver;
    try {
      for (int peer = 0; peer < processes(); ++peer) {
        if (!peers_[peer]) continue;
        peers_[peer]->sender = std::thread([this, peer] { send_messages(peer); });
        peers_[peer]->receiver = std::thread([this, peer] { receive_messages(peer); });
      }
    } catch (const std::system_error& error) {
      abort();  // the receiver no longer exists once the error is thrown
      throw SystemError({.operation = "transport.start",
                         .where = "process " + std::to_string(process_),
                         .what = "the system starts no more threads",
                         .expected = std::to_string(2 * (processes() - 1)) +
                                     " threads for messages, two for each other process",
                         .got = error.what(),
                         .fix = "raise the limit (ulimit -u)"});
    }
  }

  void send(int peer, OutgoingMessage message) override {
    Peer& to = *peers_[peer];
    {
      const std::lock_guard lock(to.mutex);
      to.messages.push_back(std::move(message));
    }
    to.filled.notify_one();
  }

  bool reads_in_place(int peer) const override { return same_host_[peer] != 0; }

  bool read(int peer, std::uint64_t address, std::size_t count, void* to) override {
    return read_memory(same_host_[peer], address, count, to);
  }

  void abort() override {
    for (const std::unique_ptr<Peer>& peer : peers_) {
      if (!peer) continue;
      peer->socket.shut_down();
      {
        const std::lock_guard lock(peer->mutex);
        peer->aborted = true;
      }
      peer->filled.notify_one();
      if (peer->sender.joinable()) peer->sender.join();
      if (peer->receiver.joinable()) peer->receiver.join();
    }
  }

 private:
  struct Peer {
    Socket socket;
    std::mutex mutex;
    std::condition_variable filled;
    std::deque<OutgoingMessage> messages;
    bool aborted = false;
    std::thread sender, receiver;
  };

  void send_messages(int process) {
    Peer& peer = *peers_[process];
    SocketHeader wire;
    for (bool last = false; !last;) {
      std::unique_lock lock(peer.mutex);
      peer.filled.wait(lock, [&] { return peer.aborted || !peer.messages.empty(); });
      if (peer.messages.empty()) return;
      const OutgoingMessage message = std::move(peer.messages.front());
      peer.messages.pop_front();
      lock.unlock();
      last = message.last;
      wire.payload_bytes = message.payload_bytes;
      wire.header = message.header;
      if (!peer.socket.send(&wire, sizeof wire) ||
          !peer.socket.send(message.payload, message.payload_bytes))
        // The peer's last messages may be unread, so the receiver reports the loss after them.
        // After a shutdown, a socket still returns what has arrived, and then ends.
        return peer.socket.shut_down();
    }
    receiver_->flushed(process);
  }

  void receive_messages(int process) {
    Peer& peer = *peers_[process];
    SocketHeader wire;
    try {
      while (peer.socket.receive(&wire, sizeof wire)) {
        SocketPayload payload(peer.socket, wire.payload_bytes);
        receiver_->arrived(process, wire.header, payload);
        payload.drop_rest();
      }
    } catch (const TransportBroken&) {
    }
    receiver_->lost(process);
  }

  int process_;
  std::vector<pid_t> same_host_;
  TransportReceiver* receiver_ = nullptr;
  std::vector<std::unique_ptr<Peer>> peers_;  // null at this process's own index
};

[[noreturn]] void refuse(const Bootstrap& bootstrap, const std::string& got) {
  throw SystemError({.operation = "transport.connect",
                     .where = "process " + std::to_string(bootstrap.process()),
                     .what = "the processes cannot be connected",
                     .expected = "connections between all, this one at " + bootstrap.own_address(),
                     .got = got,
                     .fix = "let TCP connections between the machines through the firewall"});
}

std::string purpose_of(int process) { return "messages to process " + std::to_string(process); }

Socket connect_to_peer(Bootstrap& bootstrap, int peer, const std::string& endpoint) {
  std::istringstream words(endpoint);
  std::string host;
  int port = 0;
  words >> host >> port;
  const std::vector<HostAddress> addresses = resolve(host, port, bootstrap.deadline());
  while (milliseconds_until(bootstrap.deadline()) > 0) {
    Socket socket = connect_to(addresses, bootstrap.deadline());
    if (socket && shake_hands(socket, bootstrap.process(), bootstrap.key(purpose_of(peer)),
                              bootstrap.deadline()) == HandshakeResult::kAccepted)
      return socket;
    ::poll(nullptr, 0, 20);
  }
  refuse(bootstrap, "none to process " + std::to_string(peer) + " at " + endpoint + ": " +
                        std::strerror(errno));
}

// Accepts the later processes.
void accept_peers(Bootstrap& bootstrap, Listener& listener, std::vector<Socket>& sockets) {
  for (int missing = bootstrap.processes() - 1 - bootstrap.process(); missing > 0;) {
    std::optional<Listener::Arrival> arrival = listener.accept(bootstrap.deadline());
    if (!arrival) return;
    const int peer = arrival->process;
    if (peer <= bootstrap.process() || peer >= bootstrap.processes()) continue;
    if (!sockets[peer]) --missing;
    sockets[peer] = std::move(arrival->socket);
  }
}

}  // namespace

std::unique_ptr<Transport> connect_sockets(Bootstrap& bootstrap) {
  Socket socket = bootstrap.listen();
  if (!socket) refuse(bootstrap, std::strerror(errno));
  Listener listener(std::move(socket), bootstrap.key(purpose_of(bootstrap.process())));
  const std::vector<std::string> endpoints =
      bootstrap.all_gather(bootstrap.own_address() + " " + std::to_string(listener.port()));
  std::vector<Socket> before(endpoints.size()), after(endpoints.size());
  {
    std::jthread accepting([&] { accept_peers(bootstrap, listener, after); });
    try {
      for (int peer = 0; peer < bootstrap.process(); ++peer)
        before[peer] = connect_to_peer(bootstrap, peer, endpoints[peer]);
    } catch (...) {
      listener.stop();
      throw;
    }
  }
  int missing = 0;
  for (int peer = 0; peer < bootstrap.processes(); ++peer) {
    Socket& connected = peer < bootstrap.process() ? before[peer] : after[peer];
    if (connected) connected.set_up_for_messages();
    if (!connected && peer != bootstrap.process()) ++missing;
    if (peer > bootstrap.process()) before[peer] = std::move(connected);
  }
  if (missing > 0) refuse(bootstrap, "none from " + std::to_string(missing) + " of the others");
  return std::make_unique<SocketTransport>(bootstrap.process(), std::move(before),
                                           find_same_host_peers(bootstrap));
}

}  // namespace strata
