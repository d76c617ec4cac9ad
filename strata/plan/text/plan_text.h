/// Prints a plan for the terminal: the stages, the order of work, the bytes of each rank, what the
/// mesh exchanges, and the predicted step. Also writes it as JSON.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "strata/plan/search/planner.h"

namespace strata {

/// The grid is cut at `columns` characters; tables are as wide as necessary, about 80.
std::string plan_text(const Plan& plan, int columns = 100);

/// States how ranks that share devices delay each other; "" if each has its own.
std::string devices_sentence(const Plan& plan);

/// Prints the bytes of every rank at its peak, by kind, for `plan` and for refusals.
///
///     MiB on rank  weights  gradients  values   peak  budget
///               0     28.0       28.0     7.5   63.5    50 %
///               1     28.0       28.0     1.5   57.5    45 %
///
/// All cells use the unit of the fullest rank; a cell that would print as 0.0 has its own unit.
/// Kinds without bytes on any rank are omitted. `device_bytes` 0: no limit, so no share of a
/// budget.
std::string byte_table(const Ledger& ledger, std::int64_t device_bytes);

/// Prints the bytes in every rank's host memory; "" if there are none. `host_bytes`: its budget, 0:
/// none.
///
///     MiB on host of rank  weights  gradients  states    all  budget
///                       0     28.0       28.0    56.0  112.0    50 %
std::string host_table(const Ledger& ledger, std::int64_t host_bytes);

/// Prints the bytes on every rank's disk, and the space that they need, as each chunk has two
/// slots.
std::string disk_table(const Ledger& ledger, std::int64_t disk_bytes);

/// Everything that plan_text() shows, and the predicted timeline and memory of each rank.
nlohmann::json to_json(const Plan& plan);

}  // namespace strata
