/// Numbers the runs that a server has had, in their order, whatever the clocks of trainers say.
///
/// A run draws a name. Each server gives it a number of its own: the upper 32 bits are one more than those of the
/// run before, the lower ones are the name, so that runs of two folders with equal counts differ. Folders of older
/// versions hold times in nanoseconds, which the next number goes on from as from any other.
///
/// Errors  UserError: a folder whose numbers leave no next one.
#pragma once

#include <cstdint>

namespace strata {

/// 0: no run.
using RunName = std::uint32_t;

/// `newest`: the number of the run before; 0: there was none.
std::uint64_t next_run_number(std::uint64_t newest, RunName name);

inline RunName name_of_run(std::uint64_t number) { return static_cast<RunName>(number); }

/// Another one than 0, which no run has had.
RunName draw_run_name();

}  // namespace strata
