/// Moves messages between processes: the seam below the protocol of comm/peer_protocol.h.
///
/// Three forms: sockets with same-host reads (transport/socket_transport.cpp), UCX
/// (transport/ucx_transport.cpp), and one for tests that breaks on demand
/// (transport/faulty_transport.h). transport/slow_link.h slows any of them down.
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
#include <optional>
#include <stdexcept>
#include <string>

#include "strata/base/enum_names.h"

namespace strata {

class Bootstrap;

/// The connection between processes: `mesh.transport`.
enum class TransportKind : std::uint8_t {
  kAuto,  ///< the best that transport_choice.h detects
  kSockets,
  kUcx
};
inline const char* name_of(TransportKind kind) {
  using enum TransportKind;
  static constexpr EnumNames<TransportKind> kNames{
      {kAuto, "auto"}, {kSockets, "sockets"}, {kUcx, "ucx"}};
  return kNames[kind];
}

constexpr std::size_t kMessageHeaderBytes = 1016;
using MessageHeader = std::array<std::byte, kMessageHeaderBytes>;

struct OutgoingMessage {
  MessageHeader header{};
  const void* payload = nullptr;
  std::uint64_t payload_bytes = 0;
  std::shared_ptr<const void> owner;  ///< owns the payload until it is sent
  bool last = false;                  ///< last message to this peer: later ones do not arrive
};

/// Ends arrived() if the rest of a payload cannot be received. TransportReceiver must not catch it.
struct TransportBroken : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// The bytes of a message that is arriving.
class IncomingPayload {
 public:
  virtual ~IncomingPayload() = default;
  /// Waits for the next bytes.
  /// Errors  TransportBroken if the peer is lost meanwhile.
  virtual void receive(void* to, std::size_t count) = 0;
};

class TransportReceiver {
 public:
  virtual ~TransportReceiver() = default;
  /// Payload that is not received when this returns is dropped.
  virtual void arrived(int peer, const MessageHeader& header, IncomingPayload& payload) = 0;
  /// All messages to the peer, the last included, have left this process.
  virtual void flushed(int peer) = 0;
  /// The peer has closed or cannot be reached: no more messages arrive from it or reach it. May be
  /// called more than once, also after the peer's last message, but only after all messages that
  /// have reached this machine.
  virtual void lost(int peer) = 0;
};

class Transport {
 public:
  virtual ~Transport() = default;
  virtual int process() const = 0;
  virtual int processes() const = 0;

  /// Starts to call back. The receiver must outlive abort(). If it throws, no more callbacks
  /// follow.
  virtual void start(TransportReceiver& receiver) = 0;

  /// Never waits.
  virtual void send(int peer, OutgoingMessage message) = 0;

  /// Whether this process and the peer may read each other's memory.
  virtual bool reads_in_place(int peer) const = 0;

  /// Copies memory of a peer that reads_in_place(); returns false if it is no longer mapped.
  virtual bool read(int peer, std::uint64_t address, std::size_t count, void* to) = 0;

  /// Ends all connections; no callbacks follow its return. Must not be called from a callback.
  virtual void abort() = 0;
};

/// Connects the processes of a run over TCP, one connection per pair; processes of one machine read
/// each other's memory instead where they may. Collective: all processes call it.
///
/// A thread per peer sends from a queue, so send() does not wait; another always has a receive
/// outstanding, so a lost process is detected at once. No byte is copied before the kernel. A
/// machine that vanishes without closing its connections is detected after about 30 s.
///
/// Errors  SystemError if a process cannot be reached before the join's deadline.
std::unique_ptr<Transport> connect_sockets(Bootstrap& bootstrap);

/// Connects the processes with UCX, which uses InfiniBand and RoCE directly: `mesh.transport: ucx`.
/// Collective: all processes call it.
///
/// The network reads large messages from the sender's memory (UCX's rendezvous). Processes of one
/// machine read each other's memory as with sockets, which is faster than UCX's shared memory. A
/// lost process is detected at once over TCP; UCX disables its shared memory itself, because losses
/// are detected late or not at all there.
///
/// UCX_TLS, UCX_NET_DEVICES and the other variables of UCX apply. For trusted networks only: UCX's
/// own connections prove no secret (the processes have done so before, but any program that reaches
/// UCX's port can write to memory). Tested over UCX's tcp and shared-memory transports; no RDMA
/// network was available.
///
/// Errors  SystemError if missing_ucx() or if a process cannot be reached.
std::unique_ptr<Transport> connect_ucx(Bootstrap& bootstrap);

struct MissingUcx {
  std::string reason, fix;  ///< clauses
};
/// Loads UCX's library; returns why it cannot be used, or nothing if it can.
std::optional<MissingUcx> missing_ucx();

}  // namespace strata
