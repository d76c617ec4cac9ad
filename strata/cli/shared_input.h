/// Lets every process of a launch read the whole of a stream that the command names as a file, such as a
/// recipe on standard input: processes that inherit one stream would each get a part of it.
///
/// The launcher reads each such stream once, to its end, and keeps the text in memory. `-`, /dev/stdin,
/// /dev/fd/N and /proc/self/fd/N name one.
///
/// Threads  one.
/// Errors   SystemError: a stream cannot be read or kept.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace strata {

class SharedInput {
 public:
  /// `command`: the verb and its words. `verb` knows which of them are values of options.
  SharedInput(const CLI::App& verb, const std::vector<std::string>& command);

  /// In a process that was forked: its streams begin at their first byte, and are its own.
  void give() const;

  /// The launcher itself reads them from their first byte again.
  void rewind() const;

 private:
  std::vector<int> streams_;  // descriptors, of which each now is a file in memory
};

/// Whether a path names a stream, which another program cannot read again: `-`, a pipe.
bool is_stream(const std::string& path);

}  // namespace strata
