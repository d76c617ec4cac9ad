#include "strata/comm/neighbours.h"

#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <string>

namespace strata {
namespace {

struct Card {
  std::uint64_t boot = 0;       // of the machine
  std::uint64_t processes = 0;  // the namespace in which `process` means something
  std::int64_t process = 0;     // 0: does not want neighbours
  std::uint64_t address = 0;    // of the word
  std::uint64_t word = 0;
};

bool sockets_only() {
  const char* text = std::getenv("STRATA_SOCKETS");
  return text && std::strcmp(text, "0") != 0 && *text;
}

Card own_card(const std::uint64_t& word) {
  std::string boot;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot);
  struct stat space{};
  if (sockets_only() || boot.empty() || ::stat("/proc/self/ns/pid", &space) != 0) return {};
  ::prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);  // fails where nothing forbids reading
  return {std::hash<std::string>()(boot), space.st_ino, ::getpid(),
          reinterpret_cast<std::uint64_t>(&word), word};
}

bool can_read(const Card& own, const Card& theirs) {
  if (own.process == 0 || theirs.process == 0) return false;
  if (own.boot != theirs.boot || own.processes != theirs.processes) return false;
  std::uint64_t word = 0;
  return read_memory(static_cast<pid_t>(theirs.process), theirs.address, sizeof word, &word) &&
         word == theirs.word;
}

// Everybody's value, in exchange for this process's own. What a lost process would have said
// stays empty: whoever uses the pipe next notices.
template <typename T>
std::vector<T> exchange(Pipes& pipes, const std::vector<T>& own) {
  std::vector<T> all(own.size());
  const auto with_each = [&](const auto& action) {
    for (int peer = 0; peer < pipes.processes(); ++peer) {
      if (peer == pipes.process()) continue;
      try {
        action(peer);
      } catch (const PipeBroken&) {
        all[peer] = T{};
      }
    }
  };
  with_each([&](int peer) { pipes.send(peer, &own[peer], sizeof(T)); });
  with_each([&](int peer) { pipes.receive(peer, &all[peer], sizeof(T)); });
  return all;
}

}  // namespace

std::vector<pid_t> meet_neighbours(Pipes& pipes) {
  const auto processes = static_cast<std::size_t>(pipes.processes());
  std::uint64_t word = 0;
  if (::getrandom(&word, sizeof word, 0) != sizeof word) word = 0;
  const Card own = own_card(word);
  const std::vector<Card> cards = exchange(pipes, std::vector<Card>(processes, own));
  std::vector<char> readable(processes);
  for (std::size_t peer = 0; peer < processes; ++peer) readable[peer] = can_read(own, cards[peer]);
  const std::vector<char> reads = exchange(pipes, readable);  // the word lives until all have read
  std::vector<pid_t> neighbours(processes, 0);
  for (std::size_t peer = 0; peer < processes; ++peer)
    if (readable[peer] && reads[peer]) neighbours[peer] = static_cast<pid_t>(cards[peer].process);
  return neighbours;
}

bool read_memory(pid_t process, std::uint64_t address, std::size_t count, void* to) {
  auto* at = static_cast<char*>(to);
  while (count > 0) {
    const iovec here{at, count};
    const iovec there{reinterpret_cast<void*>(address), count};
    const ssize_t got = ::process_vm_readv(process, &here, 1, &there, 1, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    at += got;
    address += static_cast<std::uint64_t>(got);
    count -= static_cast<std::size_t>(got);
  }
  return true;
}

}  // namespace strata
