/// Joins the processes of a run: all are present, belong to the run, and run the same program.
///
/// Process 0 is the rendezvous server. The others connect to it, and both sides prove that they
/// know the run's secret. Process 0 compares the descriptions of all and replies, so all end with
/// the same error. Afterwards the processes exchange their addresses over these connections.
/// Without a secret only loopback is used.
///
/// Threads  one at a time.
/// Errors   UserError: a host without address, a host on another machine without a secret,
///          processes that differ. SystemError: a port in use, a process that is missing or lost
///          after `seconds`. No wait of the join is longer.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "strata/transport/host_address.h"
#include "strata/transport/listener.h"
#include "strata/transport/rendezvous.h"
#include "strata/transport/socket.h"

namespace strata {

struct JoinOptions {
  std::string version;      ///< of Strata
  std::string fingerprint;  ///< text that must be equal in all processes: the recipe
  double seconds = 25;      ///< time limit for the other processes
  std::string secret;       ///< transport/secret.h; empty: none
  /// If torchrun's agent owns the port: publishes process 0's own port to the others and returns
  /// it.
  std::function<int(const Rendezvous& rendezvous, int port, Deadline deadline)> broadcast_port;
};

class Bootstrap {
 public:
  Bootstrap(const Rendezvous& rendezvous, const JoinOptions& options);

  int process() const { return rendezvous_.process; }
  int processes() const { return rendezvous_.processes; }

  /// The texts of all processes, in their order.
  std::vector<std::string> all_gather(const std::string& own);

  /// For the handshakes of later connections.
  HandshakeKey key(const std::string& purpose) const { return {run_key_, purpose}; }

  /// For later connections: the deadline of the join plus a few seconds.
  Deadline deadline() const { return deadline_; }

  /// This machine's address as seen by the others.
  const std::string& own_address() const { return own_address_; }

  /// Listens at that address on any port; on loopback only, if all processes are local.
  Socket listen() const;

 private:
  using Check = std::function<void(std::vector<Texts>& participants)>;
  std::vector<Texts> gather(const Texts& own, const Check& check);
  void serve(const JoinOptions& options, const std::vector<HostAddress>& addresses);
  void connect(const JoinOptions& options, const std::vector<HostAddress>& addresses);
  void accept_all(Listener& listener, double seconds);
  void tell_all(const Texts& reply);
  void tell_late(Listener& listener, const Texts& reply);
  std::string place() const;

  Rendezvous rendezvous_;
  Deadline deadline_;
  std::string own_address_, run_key_;
  bool reached_by_name_ = false;
  std::vector<Socket> participants_;  // of process 0, by process
  // of process 0: connections to be answered with the reason why they cannot join
  std::vector<Listener::Arrival> late_;
  Socket server_;  // of the other processes
};

}  // namespace strata
