/// Prints an error once, though every process of one launch ends with it.
///
/// The launcher opens a file in memory that its processes inherit (STRATA_LAUNCH names the descriptor). Whoever
/// has an error to print looks there, under a lock, whether another has printed the same, which also keeps
/// different ones apart.
#pragma once

#include <string>

namespace strata {

inline constexpr const char* kLaunchVariable = "STRATA_LAUNCH";

/// Of a new launch; < 0: none, and errors are printed by each.
int open_said();

/// On the standard error.
void say_once(const std::string& error);

}  // namespace strata
