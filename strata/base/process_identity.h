/// Says which process of which machine has something, and whether that process is still there.
///
/// Threads  any.
#pragma once

#include <cstdint>
#include <string>

namespace strata {

struct ProcessIdentity {
  std::string host;          ///< the name of the machine
  std::int64_t process = 0;  ///< its number there
  std::int64_t since = 0;    ///< when it took what it has: seconds since 1970, for people alone
  /// The kernel's boot and the namespace of the process's number; empty: unknown.
  std::string machine;
  std::uint64_t started = 0;  ///< in the kernel's ticks since its boot: a number is used again
};

/// This process, which takes something now.
ProcessIdentity this_process();

/// "2026-11-23 20:48:29 UTC"
std::string utc_text(std::int64_t seconds_since_1970);
/// "host one, process 12, since 2026-11-23 20:48:29 UTC"
std::string text_of(const ProcessIdentity& identity);

/// Whether the process has ended. False for one that this machine cannot know.
bool has_ended(const ProcessIdentity& identity);

}  // namespace strata
