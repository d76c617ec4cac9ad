#include "strata/cli/standard_streams.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <iostream>

#include "strata/base/errors.h"

namespace strata {

void open_closed_streams() {
  // In ascending order: open() takes the lowest number that is free.
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (::fcntl(stream, F_GETFD) < 0 && errno == EBADF && ::open("/dev/null", O_RDWR) < 0) return;
}

void require_output() {
  if (std::cout.flush()) return;
  throw SystemError({.operation = "cli.output",
                     .where = "standard output",
                     .what = "what the verb printed cannot be written",
                     .fix = "free space on its disk, or send it elsewhere"});
}

}  // namespace strata
