/// Brings the processes of a run together: all are there, belong together, and run the same program.
///
/// Process 0 is the rendezvous server: the others connect to it, both sides prove that they know
/// the run's secret, and it compares what all say about themselves and replies, so all end with the
/// same error. Afterwards the processes tell each other over these connections how to be reached.
/// Without a secret only loopback is listened on and connected to.
///
/// Threads  one at a time.
/// Errors   UserError: a host that has no address, one of another machine without a secret,
///          processes that differ; SystemError: a port in use, a process that is missing or lost
///          when `seconds` are over. No wait of the join is longer.
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
  std::string fingerprint;  ///< of what must be equal everywhere, as text to show: the recipe
  double seconds = 25;      ///< how long to wait for the others
  std::string secret;       ///< transport/secret.h; empty: none
  /// Where torchrun's agent has the port: tells the others process 0's own, which is returned.
  std::function<int(const Rendezvous& rendezvous, int port, Deadline deadline)> broadcast_port;
};

class Bootstrap {
 public:
  Bootstrap(const Rendezvous& rendezvous, const JoinOptions& options);

  int process() const { return rendezvous_.process; }
  int processes() const { return rendezvous_.processes; }

  /// Everybody's text, in the order of processes.
  std::vector<std::string> all_gather(const std::string& own);

  /// For the handshakes of the connections to come.
  HandshakeKey key(const std::string& purpose) const { return {run_key_, purpose}; }

  /// Of the connections to come: that of the join, and some seconds.
  Deadline deadline() const { return deadline_; }

  /// Of this machine, as the others reach it.
  const std::string& own_address() const { return own_address_; }

  /// At that address and any port: on loopback alone, if all processes are there.
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
  std::vector<Socket> participants_;     // of process 0, by process
  std::vector<Listener::Arrival> late_;  // of process 0: those that are told why they cannot join
  Socket server_;                        // of the others
};

}  // namespace strata
