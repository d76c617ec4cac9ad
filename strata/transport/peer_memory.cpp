// Whether process_vm_readv works is known only after trying it: user, ptrace scope, containers and
// seccomp may each forbid it, and a process id is valid in its own namespace only. So each process
// offers a nonce in its memory, reads those of all others with the same boot id and namespace, and
// trusts only peers for which both directions matched.
#include "strata/transport/peer_memory.h"

#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>

#include "strata/transport/secret.h"

namespace strata {
namespace {

// How a process describes its memory, as plain bytes.
struct MemoryDescription {
  char boot[40] = "";                   // boot id of the machine
  std::uint64_t process_namespace = 0;  // the namespace of `process`
  std::int64_t process = 0;             // 0: must not be read
  std::uint64_t address = 0;            // address of the nonce
  Nonce nonce{};
};

MemoryDescription describe_own(const Nonce& nonce) {
  MemoryDescription description;
  std::string boot;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot);
  struct stat space{};
  if (sockets_only() || boot.empty() || ::stat("/proc/self/ns/pid", &space) != 0)
    return description;
  // fails where reading is allowed anyway
  ::prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
  std::strncpy(description.boot, boot.c_str(), sizeof description.boot - 1);
  description.process_namespace = space.st_ino;
  description.process = ::getpid();
  description.address = reinterpret_cast<std::uint64_t>(nonce.data());
  description.nonce = nonce;
  return description;
}

bool can_read(const MemoryDescription& own, const MemoryDescription& theirs) {
  if (own.process == 0 || theirs.process == 0) return false;
  if (std::memcmp(own.boot, theirs.boot, sizeof own.boot) != 0 ||
      own.process_namespace != theirs.process_namespace)
    return false;
  Nonce nonce{};
  return read_memory(static_cast<pid_t>(theirs.process), theirs.address, nonce.size(), &nonce) &&
         nonce == theirs.nonce;
}

}  // namespace

bool sockets_only() {
  const char* text = std::getenv("STRATA_SOCKETS");
  return text && std::strcmp(text, "0") != 0 && *text;
}

std::vector<pid_t> find_same_host_peers(Bootstrap& bootstrap) {
  const auto processes = static_cast<std::size_t>(bootstrap.processes());
  const auto self = static_cast<std::size_t>(bootstrap.process());
  const Nonce nonce = make_nonce();
  const MemoryDescription own = describe_own(nonce);
  const std::vector<std::string> texts =
      bootstrap.all_gather(std::string(reinterpret_cast<const char*>(&own), sizeof own));
  std::vector<pid_t> peers(processes, 0);
  std::string readable(processes, '0');
  for (std::size_t peer = 0; peer < processes; ++peer) {
    MemoryDescription theirs;
    if (peer == self || texts[peer].size() != sizeof theirs) continue;
    std::memcpy(&theirs, texts[peer].data(), sizeof theirs);
    if (!can_read(own, theirs)) continue;
    readable[peer] = '1';
    peers[peer] = static_cast<pid_t>(theirs.process);
  }
  // The nonce lives until all have answered and therefore read it.
  const std::vector<std::string> readable_by = bootstrap.all_gather(readable);
  for (std::size_t peer = 0; peer < processes; ++peer)
    if (readable_by[peer].size() != processes || readable_by[peer][self] != '1') peers[peer] = 0;
  return peers;
}

bool read_completely(const ReadOnce& read_once, std::uint64_t address, std::size_t count,
                     void* to) {
  auto* at = static_cast<char*>(to);
  while (count > 0) {
    const ssize_t got = read_once(address, count, at);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    at += got;
    address += static_cast<std::uint64_t>(got);
    count -= static_cast<std::size_t>(got);
  }
  return true;
}

bool read_memory(pid_t process, std::uint64_t address, std::size_t count, void* to) {
  return read_completely(
      [process](std::uint64_t from, std::size_t most, void* here) {
        const iovec local{here, most}, remote{reinterpret_cast<void*>(from), most};
        return ::process_vm_readv(process, &local, 1, &remote, 1, 0);
      },
      address, count, to);
}

}  // namespace strata
