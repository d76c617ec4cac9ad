// A flood of connections must neither keep the processes of the run out nor exhaust memory or
// descriptors. At most kMostPeers unauthenticated peers are kept and the oldest is dropped first (a
// process of the run needs a millisecond and retries until its deadline). The clock is checked
// between any two rounds of accepting.
#include "strata/transport/listener.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace strata {
namespace {

using Clock = std::chrono::steady_clock;

constexpr char kMagic[8] = {'s', 't', 'r', 'a', 't', 'a', '0', '1'};
constexpr std::size_t kMostPeers = 256;
constexpr int kMostAtOnce = 64;
constexpr std::chrono::seconds kSilence{5};       // a peer that is silent for this long is dropped
constexpr std::chrono::milliseconds kGlance{50};  // between checks of stop()

struct Challenge {
  char magic[8];
  Nonce nonce;
};
struct Hello {
  char magic[8];
  std::uint32_t process;
  Nonce nonce;
  Digest proof;
};
struct Answer {
  unsigned char accepted;
  Digest proof;
};
static_assert(sizeof(Challenge) == 40 && sizeof(Hello) == 76 && sizeof(Answer) == 33);

}  // namespace

Listener::Listener(Socket socket, HandshakeKey key)
    : socket_(std::move(socket)), key_(std::move(key)) {
  static_assert(kHelloBytes == sizeof(Hello));
}

std::optional<Listener::Arrival> Listener::accept(Deadline deadline) {
  while (arrivals_.empty()) {
    if (stopped_ || Clock::now() >= deadline) return std::nullopt;
    await(deadline);
    accept_new();
    std::erase_if(peers_, [&](UnauthenticatedPeer& peer) { return !advance(peer); });
  }
  Arrival arrival = std::move(arrivals_.front());
  arrivals_.pop_front();
  return arrival;
}

void Listener::await(Deadline deadline) const {
  std::vector<pollfd> waiting{{.fd = socket_.get(), .events = POLLIN}};
  for (const UnauthenticatedPeer& peer : peers_)
    waiting.push_back({.fd = peer.socket.get(), .events = POLLIN});
  ::poll(waiting.data(), waiting.size(),
         std::min(milliseconds_until(deadline), static_cast<int>(kGlance.count())));
}

void Listener::accept_new() {
  for (int i = 0; i < kMostAtOnce; ++i) {
    pollfd waiting{.fd = socket_.get(), .events = POLLIN};
    if (::poll(&waiting, 1, 0) != 1) return;
    UnauthenticatedPeer peer;
    peer.socket = Socket(::accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!peer.socket) {
      // No descriptor is left: drops the peer that has been silent longest.
      if ((errno == EMFILE || errno == ENFILE) && !peers_.empty()) peers_.pop_front();
      return;
    }
    if (peers_.size() == kMostPeers) peers_.pop_front();
    peer.until = Clock::now() + kSilence;
    peer.nonce = make_nonce();
    Challenge challenge;
    std::memcpy(challenge.magic, kMagic, sizeof kMagic);
    challenge.nonce = peer.nonce;
    // Fits into the empty buffer of a new connection, so this does not block.
    if (peer.socket.send(&challenge, sizeof challenge, Clock::now()))
      peers_.push_back(std::move(peer));
  }
}

bool Listener::advance(UnauthenticatedPeer& peer) {
  const int got =
      peer.socket.receive_some(peer.hello.data() + peer.received, kHelloBytes - peer.received);
  if (got < 0) return false;
  peer.received += static_cast<std::size_t>(got);
  if (peer.received < kHelloBytes) return Clock::now() < peer.until;
  answer(peer);
  return false;
}

void Listener::answer(UnauthenticatedPeer& peer) {
  Hello hello;
  std::memcpy(&hello, peer.hello.data(), sizeof hello);
  if (std::memcmp(hello.magic, kMagic, sizeof kMagic) != 0) return;
  const Digest expected = proof_of(key_, "connect", hello.process, peer.nonce, hello.nonce);
  Answer answer{};
  answer.accepted = equal_in_constant_time(hello.proof, expected);
  if (answer.accepted)
    answer.proof = proof_of(key_, "listen", hello.process, peer.nonce, hello.nonce);
  else
    ++refused_;
  if (peer.socket.send(&answer, sizeof answer, Clock::now()) && answer.accepted)
    arrivals_.push_back({static_cast<int>(hello.process), std::move(peer.socket)});
}

HandshakeResult shake_hands(const Socket& socket, int process, const HandshakeKey& key,
                            Deadline deadline) {
  Challenge challenge;
  if (!socket.receive(&challenge, sizeof challenge, deadline) ||
      std::memcmp(challenge.magic, kMagic, sizeof kMagic) != 0)
    return HandshakeResult::kBroken;
  const auto number = static_cast<std::uint32_t>(process);
  Hello hello{.process = number, .nonce = make_nonce()};
  std::memcpy(hello.magic, kMagic, sizeof kMagic);
  hello.proof = proof_of(key, "connect", number, challenge.nonce, hello.nonce);
  Answer answer;
  if (!socket.send(&hello, sizeof hello, deadline) ||
      !socket.receive(&answer, sizeof answer, deadline))
    return HandshakeResult::kBroken;
  const Digest expected = proof_of(key, "listen", number, challenge.nonce, hello.nonce);
  return answer.accepted && equal_in_constant_time(answer.proof, expected)
             ? HandshakeResult::kAccepted
             : HandshakeResult::kOtherSecret;
}

}  // namespace strata
