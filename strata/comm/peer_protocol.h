/// Implements the protocol between processes: sends messages to their ranks, delivers theirs, and
/// spreads failures.
///
/// Each process sends a shutdown frame before it closes its connections. A process that closes
/// without one has crashed, and every rank ends with one error that names the ranks of the lost
/// process.
///
/// Same-host peers receive only a reference to a large tensor: their ranks read it in this
/// process's memory, which keeps it until they release it, shut down, or are lost.
///
/// Threads  all methods from any thread; finish() once, after the last send().
#pragma once

#include <chrono>
#include <functional>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "strata/base/errors.h"
#include "strata/base/monitor.h"
#include "strata/comm/mailboxes.h"
#include "strata/comm/message.h"
#include "strata/comm/shared_buffer.h"
#include "strata/transport/transport.h"

namespace strata {

class MemoryAccount;

class PeerProtocol : public RemoteRanks, private TransportReceiver {
 public:
  struct Options {
    std::function<std::string(int rank)> name_of;        ///< in errors
    std::function<MemoryAccount&(int rank)> account_of;  ///< charged for what arrives for the rank
    /// Called with each status that a peer sends; may be empty.
    std::function<void(int process, std::span<const std::byte> status)> on_status;
    /// How long peers may be silent after a failure.
    std::chrono::milliseconds shutdown_timeout{3000};
  };

  /// Starts the transport; every process hosts mailboxes.local_ranks() ranks.
  PeerProtocol(Mailboxes& mailboxes, Transport& transport, Options options);
  ~PeerProtocol() override;

  void send(const Address& address, Message message) override;
  bool reads_in_place(int rank) const override;

  /// Ends all ranks here and, with the same error, in the other processes. The loss of a process,
  /// which may be detected later, takes precedence over a peer's failure.
  void fail(const Error& error, FailureOf of) override;

  /// To every peer that still receives.
  void send_status(std::span<const std::byte> status);

  /// Shuts down: notifies every peer, waits until all have done the same (after a failure only
  /// until the timeout), and ends the transport. Losing a peer meanwhile fails the run.
  void finish();

 private:
  struct Peer {
    bool sends = true;   // until this process's shutdown frame has left
    bool speaks = true;  // until the peer's has arrived
  };
  struct Ending {
    std::vector<Peer> peers;
    bool failed = false;     // the run
    bool abandoned = false;  // this process closes its connections itself
  };

  void arrived(int process, const MessageHeader& header, IncomingPayload& payload) override;
  void flushed(int process) override;
  void lost(int process) override;

  static Ending all_of(const Transport& transport);
  int process_of(int rank) const { return rank / mailboxes_.local_ranks(); }
  template <typename Action>
  void for_each_peer(const Action& action) const;
  void send_frame(int process, const Frame& frame, Message message = {});
  void deliver(int process, const Frame& frame, IncomingPayload& payload);
  void deliver_export(int process, const Frame& frame);
  void report_lost(int process);
  void tell_failure(const Error& error, int precedence);
  std::string ranks_of(int process) const;

  Mailboxes& mailboxes_;
  Transport& transport_;
  Options options_;
  ExportedBuffers exported_;
  Monitor<Ending> ending_;
  std::mutex telling_;
  bool finished_ = false;
};

}  // namespace strata
