/// Moves messages between processes: the seam below the protocol of comm/peer_protocol.h.
///
/// Three forms: sockets with same-host reads (transport/socket_transport.cpp), UCX
/// (transport/ucx_transport.cpp), and one for tests that breaks on demand
/// (transport/faulty_transport.h).
///
/// Messages to one peer may overtake each other, apart from its last, which arrives after all.
///
/// Threads  send(), read() and reads_in_place() from any thread, start() and abort() once each;
///          calls back from threads of its own, one at a time for each peer.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>

namespace strata {

class Bootstrap;

/// What connects the processes: `mesh.transport`.
enum class TransportKind : std::uint8_t { kSockets, kUcx };
inline const char* name_of(TransportKind kind) {
  return kind == TransportKind::kSockets ? "sockets" : "ucx";
}

constexpr std::size_t kMessageHeaderBytes = 1016;
using MessageHeader = std::array<std::byte, kMessageHeaderBytes>;

struct OutgoingMessage {
  MessageHeader header{};
  const void* payload = nullptr;
  std::uint64_t payload_bytes = 0;
  std::shared_ptr<const void> owner;  ///< keeps the payload until it is sent
  bool last = false;                  ///< to this peer: nothing that is sent later arrives
};

/// Ends arrived() when the rest of a payload cannot be received; TransportReceiver lets it pass.
struct TransportBroken : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// The bytes of a message that is arriving.
class IncomingPayload {
 public:
  virtual ~IncomingPayload() = default;
  /// Waits for the next bytes. TransportBroken when the peer is lost meanwhile.
  virtual void receive(void* to, std::size_t count) = 0;
};

class TransportReceiver {
 public:
  virtual ~TransportReceiver() = default;
  /// What is not received of the payload before this returns is dropped.
  virtual void arrived(int peer, const MessageHeader& header, IncomingPayload& payload) = 0;
  /// All messages to the peer, the last included, have left this process.
  virtual void flushed(int peer) = 0;
  /// The peer has closed or cannot be reached: nothing arrives from it, and nothing gets there. It
  /// may be told more than once, and after the peer's last message, too; never before what has reached
  /// this machine.
  virtual void lost(int peer) = 0;
};

class Transport {
 public:
  virtual ~Transport() = default;
  virtual int process() const = 0;
  virtual int processes() const = 0;

  /// Begins to call back; the receiver outlives abort(). Where it throws, nothing is called back any more.
  virtual void start(TransportReceiver& receiver) = 0;

  /// Never waits.
  virtual void send(int peer, OutgoingMessage message) = 0;

  /// Whether this process and the peer may read each other's memory.
  virtual bool reads_in_place(int peer) const = 0;

  /// Copies memory of a peer that reads_in_place(); false if it is gone.
  virtual bool read(int peer, std::uint64_t address, std::size_t count, void* to) = 0;

  /// Ends all connections; when it returns, nothing is called back any more. Not from a callback.
  virtual void abort() = 0;
};

/// Connects the processes of a run over TCP, each two by one connection; processes of one machine
/// read each other's memory instead where they may. All processes call it together.
///
/// A thread per peer sends from a queue, so that send() never waits; another always has a receive
/// outstanding, so that a lost process is noticed at once. No byte is copied on the way to the
/// kernel. A machine that vanishes without closing its connections is noticed after about 30 s.
///
/// Errors  SystemError when a process cannot be reached before the join's deadline.
std::unique_ptr<Transport> connect_sockets(Bootstrap& bootstrap);

/// Connects them with UCX, which speaks to InfiniBand and RoCE directly: `mesh.transport: ucx`. All
/// processes call it together.
///
/// Large messages are read from the sender's memory by the network (UCX's rendezvous); processes of
/// one machine read each other's memory as with sockets, which is faster than UCX's shared memory.
/// A lost process is noticed at once over TCP; UCX leaves its shared memory out by itself, for there
/// it notices late or never.
///
/// UCX_TLS, UCX_NET_DEVICES and the other variables of UCX are obeyed. For trusted networks only:
/// UCX's own connections prove no secret (the processes have done so before, but any program that
/// reaches UCX's port can write to memory). Tried over UCX's tcp and shared-memory transports; no
/// RDMA network was at hand.
///
/// Errors  UserError when Strata was built without UCX; SystemError when a process cannot be reached.
std::unique_ptr<Transport> connect_ucx(Bootstrap& bootstrap);

/// Whether this build has UCX.
bool ucx_is_available();

}  // namespace strata
