/// Guards the program's standard input, output and error.
///
/// Errors  SystemError where the output cannot be written.
#pragma once

namespace strata {

/// Opens those of descriptors 0 to 2 that are closed on /dev/null. A file that the program opens
/// would get the free number otherwise, and what is printed would land in it. Call it first.
void open_closed_streams();

/// Flushes the standard output and refuses to go on if anything printed so far was lost: a full
/// disk shows no earlier.
void require_output();

}  // namespace strata
