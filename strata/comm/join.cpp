#include "strata/comm/join.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <exception>
#include <optional>
#include <utility>
#include <vector>

#include "strata/base/errors.h"
#include "strata/comm/agent_store.h"
#include "strata/comm/failure.h"
#include "strata/comm/meeting_point.h"
#include "strata/comm/socket_pipes.h"

namespace strata {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kGrace{2};     // for the verdict, after everybody's deadline
constexpr std::chrono::seconds kGreeting{5};  // who says nothing for so long is a stranger

// What a process says of itself, and what process 0 answers: nothing and the notes of all doors, or
// the bytes of a failure.
struct Card {
  int process = 0;
  int processes = 1;
  std::string version, fingerprint, door;

  Texts texts() const {
    return {"strata", std::to_string(process), std::to_string(processes), version, fingerprint,
            door};
  }
  static std::optional<Card> from(const std::optional<Texts>& texts) {
    if (!texts || texts->size() != 6 || (*texts)[0] != "strata") return std::nullopt;
    return Card{std::atoi((*texts)[1].c_str()), std::atoi((*texts)[2].c_str()), (*texts)[3],
                (*texts)[4], (*texts)[5]};
  }
};

std::string place(const Rendezvous& rendezvous) {
  return rendezvous.host + ":" + std::to_string(rendezvous.port);
}

std::string name(const Card& card) {
  return "process " + std::to_string(card.process) + " of " + std::to_string(card.processes);
}

// The first line that differs: recipes are long.
std::string differing_line(const std::string& of, const std::string& from) {
  std::size_t begin = 0;
  for (std::size_t i = 0; i < std::min(of.size(), from.size()) && of[i] == from[i]; ++i)
    if (of[i] == '\n') begin = i + 1;
  const std::string line = of.substr(begin, of.find('\n', begin) - begin);
  return line.empty() ? "nothing" : line;
}

void require_equal(const Card& card, const std::string& first, const std::string& theirs,
                   const std::string& what, const std::string& fix) {
  if (first == theirs) return;
  throw UserError({.operation = "comm.join",
                   .where = name(card),
                   .what = "the processes differ in their " + what,
                   .expected = differing_line(first, theirs) + " as process 0",
                   .got = differing_line(theirs, first),
                   .fix = fix});
}

// Process 0's part: waits for all, compares, tells everybody who came.
class Meeting {
 public:
  Meeting(const Rendezvous& rendezvous, Card own, double seconds)
      : rendezvous_(rendezvous), seconds_(seconds), guests_(rendezvous.processes) {
    guests_[0].card = std::move(own);
  }

  Texts hold(const Socket& listener, Deadline deadline) {
    try {
      welcome(listener, deadline);
      for (const Guest& guest : guests_) compare(guest.card);
    } catch (const Error& error) {
      const std::vector<std::byte> bytes = write_failure(error, 0);
      tell_all({std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size())});
      throw;
    }
    Texts verdict{""};
    for (const Guest& guest : guests_) verdict.push_back(guest.card.door);
    tell_all(verdict);
    return verdict;
  }

 private:
  struct Guest {
    Card card;
    Socket socket;
  };

  void welcome(const Socket& listener, Deadline deadline) {
    for (int missing = rendezvous_.processes - 1; missing > 0;) {
      if (!listener.readable(deadline)) refuse_missing();
      Socket socket = listener.accept();
      if (!socket) continue;
      std::optional<Card> card = Card::from(receive_texts(socket, Clock::now() + kGreeting));
      if (!card) continue;  // a stranger
      require_place(*card, socket);
      guests_[card->process] = {*card, std::move(socket)};
      --missing;
    }
  }

  void require_place(const Card& card, Socket& socket) {
    const bool fits = card.processes == rendezvous_.processes && card.process > 0 &&
                      card.process < rendezvous_.processes;
    if (fits && !guests_[card.process].socket) return;
    late_ = std::move(socket);  // is told, too
    throw UserError({.operation = "comm.join",
                     .where = place(rendezvous_),
                     .what = fits ? "two processes have the same number"
                                  : "a process of another run came to the meeting point",
                     .expected = "processes 1 to " + std::to_string(rendezvous_.processes - 1) +
                                 " of " + std::to_string(rendezvous_.processes),
                     .got = (fits ? "another " : "") + name(card),
                     .fix = "give each process a RANK of its own, and each run a MASTER_PORT"});
  }

  [[noreturn]] void refuse_missing() const {
    std::vector<std::string> absent;
    for (int process = 1; process < rendezvous_.processes; ++process)
      if (!guests_[process].socket) absent.push_back(std::to_string(process));
    std::string what = absent.size() == 1 ? "process " : "processes ";
    for (std::size_t i = 0; i < absent.size(); ++i) what += (i ? ", " : "") + absent[i];
    throw SystemError(
        {.operation = "comm.join",
         .where = place(rendezvous_),
         .what = what + " of " + std::to_string(rendezvous_.processes) + " missing at the start",
         .expected = "all within " + std::to_string(static_cast<int>(seconds_)) + " s",
         .fix = "look for its own error; if it only starts slowly, set STRATA_JOIN_SECONDS"});
  }

  void compare(const Card& card) const {
    const Card& own = guests_[0].card;
    require_equal(card, own.version, card.version, "version of Strata",
                  "install the same version everywhere");
    require_equal(card, own.fingerprint, card.fingerprint, "recipe",
                  "start every process with the same recipe and the same --set");
  }

  void tell_all(const Texts& verdict) const {
    for (const Guest& guest : guests_)
      if (guest.socket) send_texts(guest.socket, verdict);
    if (late_) send_texts(late_, verdict);
  }

  const Rendezvous& rendezvous_;
  double seconds_;
  std::vector<Guest> guests_;
  Socket late_;
};

Socket open_meeting(const Rendezvous& rendezvous) {
  Socket listener = listen_on(rendezvous.store_is_running ? 0 : rendezvous.port);
  if (listener) return listener;
  throw SystemError({.operation = "comm.join",
                     .where = place(rendezvous),
                     .what = "process 0 cannot listen at the meeting point",
                     .expected = "a free port",
                     .got = std::strerror(errno),
                     .fix = "set MASTER_PORT to a free port, on all processes"});
}

// The others' part. Tries again until the deadline: the last run's listener may be closing.
Texts attend(const Rendezvous& rendezvous, int port, const Card& own, Deadline deadline) {
  std::string what = "nobody listens at the meeting point";
  do {
    const Socket socket = connect_to(rendezvous.host, port);
    if (socket) {
      what = "process 0 does not answer at the meeting point";
      send_texts(socket, own.texts());
      if (std::optional<Texts> verdict = receive_texts(socket, deadline + kGrace)) return *verdict;
    }
    ::poll(nullptr, 0, 20);
  } while (milliseconds_until(deadline) > 0);
  throw SystemError({.operation = "comm.join",
                     .where = place(rendezvous),
                     .what = what,
                     .expected = "process 0 of " + std::to_string(rendezvous.processes),
                     .fix = "start process 0, or set MASTER_ADDR and MASTER_PORT to where it is"});
}

}  // namespace

std::unique_ptr<Pipes> join(const Rendezvous& rendezvous, const JoinOptions& options) {
  const Deadline deadline =
      Clock::now() + std::chrono::milliseconds(static_cast<std::int64_t>(options.seconds * 1000));
  require_address(rendezvous);
  Door door(rendezvous.process, own_address(rendezvous));
  Card own{rendezvous.process, rendezvous.processes, options.version, options.fingerprint,
           door.note()};
  Texts verdict;
  if (rendezvous.process == 0) {
    const Socket listener = open_meeting(rendezvous);
    if (rendezvous.store_is_running) share_number(rendezvous, listener.port(), deadline);
    verdict = Meeting(rendezvous, std::move(own), options.seconds).hold(listener, deadline);
  } else {
    const int port =
        rendezvous.store_is_running ? share_number(rendezvous, 0, deadline) : rendezvous.port;
    verdict = attend(rendezvous, port, own, deadline);
  }
  const std::string& failure = verdict.at(0);
  if (!failure.empty())
    std::rethrow_exception(read_failure(std::as_bytes(std::span(failure))).error);
  verdict.erase(verdict.begin());
  return door.connect(verdict, deadline + kGrace);
}

}  // namespace strata
