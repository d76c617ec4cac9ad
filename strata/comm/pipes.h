/// Moves bytes between processes: one ordered pipe from each process to each other.
///
/// Threads  one sender and one receiver per peer at a time; abort() from any thread.
/// Errors   PipeBroken when the peer's end has closed, or after abort().
#pragma once

#include <cstddef>
#include <stdexcept>

namespace strata {

/// Caught where it is known whether the peer had said goodbye; never reported.
struct PipeBroken : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class Pipes {
 public:
  virtual ~Pipes() = default;
  virtual int process() const = 0;
  virtual int processes() const = 0;
  /// Waits until the bytes may be written to again.
  virtual void send(int peer, const void* bytes, std::size_t count) = 0;
  virtual void receive(int peer, void* bytes, std::size_t count) = 0;
  /// Ends every send and receive, now and later.
  virtual void abort() = 0;
};

}  // namespace strata
