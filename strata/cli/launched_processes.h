/// Starts this program several times on one machine, as processes of one run, and waits for all.
///
/// They get a secret of their own (STRATA_SECRET), unless one is set: nobody else can join them.
/// The processes die with their launcher, whatever ends it. Signals that end a program go to all.
/// After the first failure the others, which end by themselves, have 15 s.
///
/// Threads  one run at a time, in the main thread.
#pragma once

#include <string>
#include <vector>

namespace strata {

struct LaunchResult {
  int exit_code = 0;         ///< the first that was not 0; 3 if a signal ended the process
  int killed = 0;            ///< processes that a signal ended
  bool interrupted = false;  ///< the launcher got a signal
};

/// Arguments: those behind the program's name.
LaunchResult launch_processes(int processes, const std::vector<std::string>& arguments);

}  // namespace strata
