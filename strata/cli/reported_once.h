/// Prints an error once, even if every process of a launch ends with it.
///
/// The launcher opens a file in memory that its processes inherit (STRATA_LAUNCH names the
/// descriptor). A process with an error locks the file and checks whether another process has
/// printed the same. The lock also keeps different errors apart.
#pragma once

#include <string>

namespace strata {

inline constexpr const char* kLaunchVariable = "STRATA_LAUNCH";

/// Opens the file of a new launch; < 0 if that fails: then each process prints its errors.
int open_reported_errors();

/// Prints on standard error.
void report_once(const std::string& error);

}  // namespace strata
