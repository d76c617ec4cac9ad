/// Makes pipes of TCP connections, one between each two processes.
///
/// Nothing but what is sent travels, and no byte is copied on the way to the kernel. A machine that
/// vanishes without closing its connections is noticed after about 30 s.
///
/// Errors  SystemError when a process cannot be reached in time.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "strata/comm/pipes.h"
#include "strata/comm/socket.h"

namespace strata {

/// Where the processes after this one knock; the ones before it, this one knocks at.
class Door {
 public:
  /// `address`: of this machine, where the others reach it.
  Door(int process, std::string address);

  /// How to find it: to be given to the others.
  std::string note() const;

  /// `notes`: of the doors of all processes, in order.
  std::unique_ptr<Pipes> connect(const std::vector<std::string>& notes, Deadline deadline);

 private:
  Socket await_knock(int processes, int& peer, Deadline deadline) const;
  [[noreturn]] void fail(const std::string& got) const;

  int process_;
  std::string address_;
  Socket socket_;
  std::uint64_t word_ = 0;  // strangers do not know it
};

}  // namespace strata
