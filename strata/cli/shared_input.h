/// Lets every process of a launch read a whole stream that the command names as a file, such as a
/// recipe on standard input: processes that inherit one stream would each get a part of it.
///
/// The launcher reads each such stream to its end and keeps the text in memory. Names of streams
/// are `-`, /dev/stdin, /dev/fd/N and /proc/self/fd/N.
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
  /// `command`: the verb and its words. `verb` knows which words are values of options.
  SharedInput(const CLI::App& verb, const std::vector<std::string>& command);

  /// Called in a forked process: gives it streams of its own that begin at the first byte.
  void give() const;

  /// Rewinds the streams for the launcher's own reads.
  void rewind() const;

 private:
  std::vector<int> streams_;  // descriptors; each now refers to a file in memory
};

/// Whether a path names a stream, which another program cannot read again: `-`, a pipe.
bool is_stream(const std::string& path);

}  // namespace strata
