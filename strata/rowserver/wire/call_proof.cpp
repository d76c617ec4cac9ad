// The nonce of a challenge is a keyed hash of its number, its time and the caller's connection. The
// server therefore recognises its own challenges without storing them, and a stranger who requests
// many costs no memory.
#include "strata/rowserver/wire/call_proof.h"

#include <algorithm>
#include <optional>
#include <sstream>

#include "strata/base/errors.h"

namespace strata {
namespace {

Digest proof_at(const std::string& secret, const std::string& addresses, const char* role,
                const Nonce& of_server, const Nonce& of_caller) {
  return proof_of({.secret = secret, .purpose = "rows at " + addresses}, role, 0, of_server,
                  of_caller);
}

SystemError used_up() {
  return SystemError({.operation = "embed.connect",
                      .what = "the server gave another challenge since",
                      .expected = "the challenge of this connection",
                      .got = "an older one",
                      .fix = "ask again"});
}

struct ChallengeText {
  std::uint64_t number = 0;
  std::int64_t time = 0;
  Nonce nonce{};
};

bool read_digest(std::istream& from, Digest& digest) {
  std::string text;
  from >> text;
  const std::optional<Digest> read = parse_hex(text);
  if (read) digest = *read;
  return read.has_value();
}

bool read_challenge(std::istream& from, ChallengeText& challenge) {
  return from >> challenge.number >> challenge.time && read_digest(from, challenge.nonce);
}

}  // namespace

std::string CallProof::question() const { return hex_text(nonce_); }

std::string CallProof::answer_to(const std::string& challenge, const std::string& address) const {
  std::istringstream from(challenge);
  ChallengeText of_server;
  Digest proof;
  std::string addresses;
  const bool whole = read_challenge(from, of_server) && read_digest(from, proof) &&
                     std::getline(from >> std::ws, addresses);
  if (!whole || !equal_in_constant_time(
                    proof, proof_at(secret_, addresses, "listen", of_server.nonce, nonce_)))
    throw UserError({.operation = "embed.secret",
                     .where = server_,
                     .what = "the server does not know the secret of this process",
                     .expected = "one STRATA_SECRET for both, or a server of the same user",
                     .got = "another secret there",
                     .fix = "set STRATA_SECRET or STRATA_SECRET_FILE alike for servers and "
                            "trainers"});
  std::istringstream all(addresses);
  std::vector<std::string> known;
  for (std::string one; all >> one;) known.push_back(one);
  if (std::ranges::find(known, address) == known.end())
    throw UserError({.operation = "embed.secret",
                     .where = server_,
                     .what = "another program passes calls on to the server",
                     .expected = addresses,
                     .got = address,
                     .fix = "name the address at which the server listens"});
  const Digest mine = proof_at(secret_, addresses, "connect", of_server.nonce, nonce_);
  return std::to_string(of_server.number) + " " + std::to_string(of_server.time) + " " +
         hex_text(of_server.nonce) + " " + hex_text(nonce_) + " " + hex_text(mine);
}

CallGate::CallGate(std::string secret, std::chrono::milliseconds good_for)
    : secret_(std::move(secret)), good_for_(good_for) {}

void CallGate::listen_at(const std::vector<std::string>& addresses) {
  const std::lock_guard lock(mutex_);
  addresses_.clear();
  for (const std::string& address : addresses)
    addresses_ += (addresses_.empty() ? "" : " ") + address;
}

std::string CallGate::addresses() const {
  const std::lock_guard lock(mutex_);
  if (addresses_.empty())
    throw SystemError({.operation = "embed.connect",
                       .what = "the server is starting",
                       .expected = "a server that listens",
                       .got = "one that is about to",
                       .fix = "ask again"});
  return addresses_;
}

Nonce CallGate::nonce_of(std::uint64_t number, std::int64_t time,
                         const std::string& connection) const {
  return keyed_hash(own_key_,
                    std::to_string(number) + " " + std::to_string(time) + " " + connection);
}

std::string CallGate::challenge(const std::string& question, const std::string& connection) {
  const std::optional<Nonce> of_caller = parse_hex(question);
  if (!of_caller)
    throw UserError({.operation = "embed.secret",
                     .what = "a request for a challenge has no nonce",
                     .expected = "64 hexadecimal digits",
                     .got = std::to_string(question.size()) + " characters",
                     .fix = "start servers and trainers with the same program"});
  const std::string at = addresses();
  const std::int64_t time =
      std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now().time_since_epoch())
          .count();
  std::uint64_t number = 0;
  {
    const std::lock_guard lock(mutex_);
    number = ++given_;
  }
  const Nonce nonce = nonce_of(number, time, connection);
  return std::to_string(number) + " " + std::to_string(time) + " " + hex_text(nonce) + " " +
         hex_text(proof_at(secret_, at, "listen", nonce, *of_caller)) + " " + at;
}

void CallGate::let_in(const std::string& proof, const std::string& connection) {
  std::istringstream from(proof);
  ChallengeText challenge;
  Nonce of_caller{};
  Digest given{};
  const bool whole =
      read_challenge(from, challenge) && read_digest(from, of_caller) && read_digest(from, given);
  const std::string at = addresses();
  if (whole && !equal_in_constant_time(challenge.nonce,
                                       nonce_of(challenge.number, challenge.time, connection)))
    throw used_up();
  if (!whole ||
      !equal_in_constant_time(given, proof_at(secret_, at, "connect", challenge.nonce, of_caller)))
    throw UserError({.operation = "embed.secret",
                     .what = "the caller has not proven that it knows the server's secret",
                     .expected = "one STRATA_SECRET for both, or a caller of the same user",
                     .got = whole ? "another secret" : "no proof",
                     .fix = "set STRATA_SECRET or STRATA_SECRET_FILE alike for servers and "
                            "trainers"});
  const std::int64_t oldest = std::chrono::duration_cast<std::chrono::milliseconds>(
                                  Clock::now().time_since_epoch() - good_for_)
                                  .count();
  const std::lock_guard lock(mutex_);
  std::erase_if(used_, [&](const auto& used) { return used.second < oldest; });
  if (challenge.time < oldest || !used_.emplace(challenge.number, challenge.time).second)
    throw used_up();
}

}  // namespace strata
