// Messages before the proof of the secret have a fixed size (transport/listener.h). After it, a
// participant may send kMostBytes, which process 0 reads into memory that grows with the received
// bytes.
#include "strata/transport/join.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <exception>
#include <optional>
#include <span>

#include "strata/base/errors.h"

namespace strata {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kGrace{2};  // for the reply, after the deadline of all processes
// for connections, even if the last process joined late
constexpr std::chrono::seconds kConnecting{5};
constexpr std::chrono::seconds kLate{5};  // to answer later processes after two failed to join
constexpr std::chrono::milliseconds kPause{20};     // between two attempts
constexpr std::size_t kMostBytes = 4 << 20;         // from a participant
constexpr std::size_t kMostReplyBytes = 256 << 20;  // from process 0

// The first texts that a process sends.
enum JoinText { kProcesses, kVersion, kFingerprint, kJoinTexts };

std::string name(int process, int processes) {
  return "process " + std::to_string(process) + " of " + std::to_string(processes);
}

// The first differing line, because recipes are long.
std::string differing_line(const std::string& of, const std::string& from) {
  std::size_t begin = 0;
  for (std::size_t i = 0; i < std::min(of.size(), from.size()) && of[i] == from[i]; ++i)
    if (of[i] == '\n') begin = i + 1;
  const std::string line = of.substr(begin, of.find('\n', begin) - begin);
  return line.empty() ? "nothing" : line;
}

void require_equal(const std::string& where, const std::string& first, const std::string& theirs,
                   const std::string& what, const std::string& fix) {
  if (first == theirs) return;
  throw UserError({.operation = "transport.join",
                   .where = where,
                   .what = "the processes differ in their " + what,
                   .expected = differing_line(first, theirs) + " as process 0",
                   .got = differing_line(theirs, first),
                   .fix = fix});
}

void require_equal_participants(std::vector<Texts>& participants) {
  const Texts first = participants[0];
  for (std::size_t i = 1; i < participants.size(); ++i) {
    const std::string where =
        "process " + std::to_string(i) + " of " + participants[i].at(kProcesses);
    if (participants[i][kProcesses] != first[kProcesses])
      throw UserError({.operation = "transport.join",
                       .where = where,
                       .what = "a process of another run came to the rendezvous",
                       .expected = first[kProcesses] + " processes",
                       .got = participants[i][kProcesses],
                       .fix = "give each run a MASTER_PORT of its own"});
    require_equal(where, first[kVersion], participants[i][kVersion], "version of Strata",
                  "install the same version everywhere");
    require_equal(where, first[kFingerprint], participants[i][kFingerprint], "recipe",
                  "start every process with the same recipe and the same --set");
  }
  for (Texts& participant : participants)
    participant.assign(kJoinTexts, "");  // the others' texts are no longer needed
}

Texts join_texts(const Rendezvous& rendezvous, const JoinOptions& options) {
  if (options.version.size() + options.fingerprint.size() < kMostBytes)
    return {std::to_string(rendezvous.processes), options.version, options.fingerprint};
  throw UserError({.operation = "transport.join",
                   .where = name(rendezvous.process, rendezvous.processes),
                   .what = "the recipe is too long to be compared among processes",
                   .expected = "less than 4 MiB",
                   .got = std::to_string(options.fingerprint.size()) + " bytes",
                   .fix = "shorten the recipe"});
}

void require_secret_or_loopback(const Rendezvous& rendezvous, const std::string& secret,
                                const std::vector<HostAddress>& addresses) {
  if (!secret.empty() || all_loopback(addresses)) return;
  throw UserError({.operation = "transport.join",
                   .where = rendezvous.host + ":" + std::to_string(rendezvous.port),
                   .what = "processes of several machines need a secret, which proves that they "
                           "belong together",
                   .expected = "STRATA_SECRET, or STRATA_SECRET_FILE with a file of mode 600",
                   .got = "neither",
                   .fix = "export STRATA_SECRET=$(openssl rand -hex 32), the same for all "
                          "processes; or set MASTER_ADDR=127.0.0.1 if all are on this machine"});
}

// Listens on loopback only, if all processes must be on this machine. A host's own name does not
// prove that: it may resolve to loopback there and to its network elsewhere.
Socket listen_for(const Rendezvous& rendezvous, const std::string& secret,
                  std::vector<HostAddress> addresses) {
  const int port = rendezvous.store_is_running ? 0 : rendezvous.port;
  if (!secret.empty() && !names_loopback(rendezvous.host)) return listen_everywhere(port);
  for (HostAddress& address : addresses) {
    if (port == 0) address = resolve(address.text(), 0, Deadline::max())[0];
    if (Socket socket = listen_at(address)) return socket;
  }
  return {};
}

Texts failure_texts(const Error& error) {
  const std::vector<std::byte> bytes = write_failure(error, 0);
  return {std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size())};
}

[[noreturn]] void throw_failure(const std::string& failure) {
  std::rethrow_exception(read_failure(std::as_bytes(std::span(failure))).error);
}

}  // namespace

Bootstrap::Bootstrap(const Rendezvous& rendezvous, const JoinOptions& options)
    : rendezvous_(rendezvous),
      deadline_(Clock::now() +
                std::chrono::milliseconds(static_cast<std::int64_t>(options.seconds * 1000))),
      run_key_(options.secret) {
  const std::vector<HostAddress> addresses = resolve(rendezvous_.host, rendezvous_.port, deadline_);
  require_secret_or_loopback(rendezvous_, options.secret, addresses);
  // On Debian a machine's own name means 127.0.1.1 locally, and its network address elsewhere.
  reached_by_name_ =
      all_loopback(addresses) && !names_loopback(rendezvous_.host) && !options.secret.empty();
  own_address_ = reached_by_name_ ? rendezvous_.host : strata::own_address(addresses);
  if (process() == 0) {
    serve(options, addresses);
  } else {
    connect(options, addresses);
  }
  gather(join_texts(rendezvous_, options), &require_equal_participants);
  deadline_ += kConnecting;
  // Every key contains a number of this run, so proofs for another run are invalid here.
  const std::string session = all_gather(process() == 0 ? make_secret() : "")[0];
  run_key_ += session;
}

Socket Bootstrap::listen() const {
  return reached_by_name_ ? listen_everywhere(0)
                          : listen_at(resolve(own_address_, 0, deadline_)[0]);
}

std::string Bootstrap::place() const {
  return rendezvous_.host + ":" + std::to_string(rendezvous_.port);
}

void Bootstrap::serve(const JoinOptions& options, const std::vector<HostAddress>& addresses) {
  Socket socket = listen_for(rendezvous_, options.secret, addresses);
  if (!socket)
    throw SystemError({.operation = "transport.join",
                       .where = place(),
                       .what = "process 0 cannot listen at the rendezvous",
                       .expected = "a free port",
                       .got = std::strerror(errno),
                       .fix = "set MASTER_PORT to a free port, on all processes"});
  Listener listener(std::move(socket), key("join"));
  if (rendezvous_.store_is_running) options.broadcast_port(rendezvous_, listener.port(), deadline_);
  participants_.resize(static_cast<std::size_t>(processes()));
  try {
    accept_all(listener, options.seconds);
  } catch (const Error& error) {
    const Texts failure = failure_texts(error);
    tell_all(failure);
    tell_late(listener, failure);
    throw;
  }
}

void Bootstrap::accept_all(Listener& listener, double seconds) {
  for (int missing = processes() - 1; missing > 0; --missing) {
    std::optional<Listener::Arrival> arrival = listener.accept(deadline_);
    if (!arrival) {
      std::string absent;
      for (int i = 1; i < processes(); ++i)
        if (!participants_[i]) absent += (absent.empty() ? "" : ", ") + std::to_string(i);
      throw SystemError(
          {.operation = "transport.join",
           .where = place(),
           .what = (missing == 1 ? "process " : "processes ") + absent + " of " +
                   std::to_string(processes()) + " missing at the start",
           .expected = "all within " + std::to_string(static_cast<int>(seconds)) + " s",
           .got = listener.refused() == 0
                      ? ""
                      : std::to_string(listener.refused()) + " connections with another secret",
           .fix = "look for its own error; if it only starts slowly, set STRATA_JOIN_SECONDS"});
    }
    const int process = arrival->process;
    const bool fits = process > 0 && process < processes();
    if (fits && !participants_[process]) {
      participants_[process] = std::move(arrival->socket);
      continue;
    }
    late_.push_back(std::move(*arrival));
    throw UserError({.operation = "transport.join",
                     .where = place(),
                     .what = fits ? "two processes have the same number"
                                  : "a process of another run came to the rendezvous",
                     .expected = "processes 1 to " + std::to_string(processes() - 1) + " of " +
                                 std::to_string(processes()),
                     .got = (fits ? "another process " : "process ") + std::to_string(process),
                     .fix = "give each process a RANK of its own, and each run a MASTER_PORT"});
  }
}

// Retries until the deadline: the listener of the previous run may still be closing, and a flooded
// listener drops connections.
void Bootstrap::connect(const JoinOptions& options, const std::vector<HostAddress>& input) {
  std::vector<HostAddress> addresses = input;
  if (rendezvous_.store_is_running)
    addresses =
        resolve(rendezvous_.host, options.broadcast_port(rendezvous_, 0, deadline_), deadline_);
  std::string what = "no process listens at the rendezvous";
  for (; Clock::now() < deadline_; ::poll(nullptr, 0, static_cast<int>(kPause.count()))) {
    Socket socket = connect_to(addresses, deadline_);
    if (!socket) continue;
    what = "process 0 does not answer at the rendezvous";
    const HandshakeResult result = shake_hands(socket, process(), key("join"), deadline_);
    if (result == HandshakeResult::kAccepted) {
      server_ = std::move(socket);
      return;
    }
    if (result == HandshakeResult::kOtherSecret)
      throw UserError({.operation = "transport.join",
                       .where = place(),
                       .what = "this process and process 0 do not have the same secret",
                       .expected = "one STRATA_SECRET for all processes of a run",
                       .got = options.secret.empty() ? "none here" : "another one here",
                       .fix = "set STRATA_SECRET or STRATA_SECRET_FILE alike for all processes; "
                              "another run may use the port: set MASTER_PORT"});
  }
  throw SystemError({.operation = "transport.join",
                     .where = place(),
                     .what = what,
                     .expected = "process 0 of " + std::to_string(processes()),
                     .fix = "start process 0, or set MASTER_ADDR and MASTER_PORT to where it is"});
}

void Bootstrap::tell_all(const Texts& reply) {
  for (const Socket& participant : participants_)
    if (participant) send_texts(participant, reply, deadline_ + kGrace);
  for (const Listener::Arrival& late : late_) send_texts(late.socket, reply, deadline_ + kGrace);
}

// A process that finds no listener retries until its deadline, so late ones are answered here.
void Bootstrap::tell_late(Listener& listener, const Texts& reply) {
  const auto is_missing = [&] {
    const auto of_this_run = [&](const Listener::Arrival& late) {
      return late.process > 0 && late.process < processes();
    };
    const auto joined = std::ranges::count_if(
        participants_, [](const Socket& participant) { return static_cast<bool>(participant); });
    return joined + std::ranges::count_if(late_, of_this_run) < processes() - 1;
  };
  const Deadline until = std::min(deadline_, Clock::now() + kLate);
  while (is_missing()) {
    std::optional<Listener::Arrival> arrival = listener.accept(until);
    if (!arrival) return;
    send_texts(arrival->socket, reply, until + kGrace);
    late_.push_back(std::move(*arrival));
  }
}

// A reply is either an error, or an empty text and then the texts of all processes.
std::vector<Texts> Bootstrap::gather(const Texts& own, const Check& check) {
  std::vector<Texts> all(static_cast<std::size_t>(processes()));
  if (process() > 0) {
    const std::size_t each = own.size();
    // If process 0 accepts no more texts, it may have sent the reason.
    send_texts(server_, own, deadline_);
    const std::optional<Texts> reply = receive_texts(server_, kMostReplyBytes, deadline_ + kGrace);
    if (!reply || reply->empty())
      throw SystemError({.operation = "transport.join",
                         .where = place(),
                         .what = "process 0 was lost or does not answer at the start",
                         .expected = name(0, processes()),
                         .fix = "look for its own error"});
    if (!reply->at(0).empty()) throw_failure(reply->at(0));
    STRATA_CHECK_EQ(reply->size(), 1 + all.size() * each, "transport.gather");
    auto at = reply->begin() + 1;
    for (Texts& texts : all)
      for (std::size_t i = 0; i < each; ++i) texts.push_back(std::move(*at++));
    return all;
  }
  all[0] = own;
  Texts reply{""};
  try {
    for (int peer = 1; peer < processes(); ++peer) {
      std::optional<Texts> texts =
          receive_texts(participants_[static_cast<std::size_t>(peer)], kMostBytes, deadline_);
      if (!texts || texts->size() != own.size())
        throw SystemError({.operation = "transport.join",
                           .where = name(peer, processes()),
                           .what = "lost or silent at the start",
                           .expected = "its part of the start before STRATA_JOIN_SECONDS are over",
                           .fix = "look for its own error"});
      all[static_cast<std::size_t>(peer)] = std::move(*texts);
    }
    if (check) check(all);
  } catch (const Error& error) {
    tell_all(failure_texts(error));
    throw;
  }
  for (const Texts& texts : all) reply.insert(reply.end(), texts.begin(), texts.end());
  tell_all(reply);
  return all;
}

std::vector<std::string> Bootstrap::all_gather(const std::string& own) {
  std::vector<std::string> all;
  for (Texts& texts : gather({own}, nullptr)) all.push_back(std::move(texts.at(0)));
  return all;
}

}  // namespace strata
