/// Identifies the process on a machine that holds a resource, and reports whether it has ended.
///
/// Threads  any.
#pragma once

#include <cstdint>
#include <string>

namespace strata {

struct ProcessIdentity {
  std::string host;          ///< the name of the machine
  std::int64_t process = 0;  ///< its number on that machine
  std::int64_t since = 0;    ///< of the acquisition: seconds since 1970, only for messages
  /// The kernel's boot and the namespace of the process number; empty if unknown.
  std::string machine;
  std::uint64_t started = 0;  ///< kernel ticks since boot: numbers are reused
};

/// Identifies this process, which acquires the resource now.
ProcessIdentity this_process();

/// "2026-11-23 20:48:29 UTC"
std::string utc_text(std::int64_t seconds_since_1970);
/// "host one, process 12, since 2026-11-23 20:48:29 UTC"
std::string text_of(const ProcessIdentity& identity);

/// Whether the process has ended. False if this machine cannot know.
bool has_ended(const ProcessIdentity& identity);

}  // namespace strata
