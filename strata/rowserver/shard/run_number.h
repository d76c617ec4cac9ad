/// Numbers the runs of a server in order, independent of the trainers' clocks.
///
/// A run draws a name. Each server gives it a number: the upper 32 bits are one more than those of
/// the previous run, the lower ones are the name, so that runs of two folders with equal counts
/// differ. Folders of older versions hold times in nanoseconds; the next number continues from them
/// as from any other number.
///
/// Errors   UserError: a folder whose numbers allow no next one.
#pragma once

#include <cstdint>

namespace strata {

/// 0: no run.
using RunName = std::uint32_t;

/// `newest`: the number of the previous run; 0: none.
std::uint64_t next_run_number(std::uint64_t newest, RunName name);

inline RunName name_of_run(std::uint64_t number) { return static_cast<RunName>(number); }

/// Draws a name other than 0.
RunName draw_run_name();

}  // namespace strata
