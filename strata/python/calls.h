/// Runs long work for a Python thread: without the interpreter's lock, and interruptible.
#pragma once

#include <nanobind/nanobind.h>

#include <utility>

namespace strata {

/// Throws KeyboardInterrupt, or whatever a signal's handler raises. For any thread: only Python's
/// main thread handles signals. Takes the interpreter's lock.
void raise_signals();

/// Makes Python exceptions (strata.errors) of Strata's errors.
void translate_errors();

/// Calls f without the interpreter's lock.
template <typename F>
auto unlocked(F f) {
  const nanobind::gil_scoped_release release;
  return f();
}

}  // namespace strata
