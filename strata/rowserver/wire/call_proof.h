/// Proves with every call to a server of rows that caller and server know the same secret, without
/// sending it.
///
/// 1. The caller requests a challenge, with a nonce.
/// 2. The server answers with a challenge, its addresses, and a keyed hash of both. It stores
///    nothing.
/// 3. The caller checks that it reached one of these addresses and sends another keyed hash with
///    its call.
/// A challenge is valid once, for half a minute, on the connection that requested it. A program
/// that listens at another address cannot forward it.
///
/// Source   as the connections of ranks: transport/secret.h
/// Threads  any.
/// Errors   UserError: another secret, or none; the message says nothing about the server.
///          SystemError: a challenge that has expired; the next call requests another one.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "strata/transport/secret.h"

namespace strata {

/// The caller's side, of one call.
class CallProof {
 public:
  /// `server`: for errors.
  CallProof(std::string server, std::string secret)
      : server_(std::move(server)), secret_(std::move(secret)) {}

  std::string question() const;  ///< to ask for a challenge
  /// What goes with the call. `address`: where the challenge came from.
  std::string answer_to(const std::string& challenge, const std::string& address) const;

 private:
  const std::string server_, secret_;
  const Nonce nonce_ = make_nonce();
};

/// The server's side, of all calls.
class CallGate {
 public:
  explicit CallGate(std::string secret,
                    std::chrono::milliseconds good_for = std::chrono::seconds(30));

  /// Sets the addresses at which callers reach this server; until then no call is let in.
  void listen_at(const std::vector<std::string>& addresses);
  /// `connection`: the caller's.
  std::string challenge(const std::string& question, const std::string& connection);
  void let_in(const std::string& proof, const std::string& connection);

 private:
  using Clock = std::chrono::steady_clock;
  Nonce nonce_of(std::uint64_t number, std::int64_t time, const std::string& connection) const;
  std::string addresses() const;

  const std::string secret_, own_key_ = make_secret();
  const std::chrono::milliseconds good_for_;
  mutable std::mutex mutex_;
  std::string addresses_;
  std::uint64_t given_ = 0;
  std::map<std::uint64_t, std::int64_t> used_;  // times of those that are still good, by number
};

}  // namespace strata
