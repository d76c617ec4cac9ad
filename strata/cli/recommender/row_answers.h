/// Parses the questions of `strata embed-server --ask` and writes a row server's answers.
///
/// Errors  UserError: an unknown question, a missing number; else as RowInspection.
#pragma once

#include <string>

#include "strata/rowserver/wire/inspection.h"

namespace strata {

/// Answers one of these questions as JSON, except for metrics:
///
///     metrics            counts in the text format of Prometheus
///     sizes              rows and bytes of each table
///     digest             {"version", "digest"} of the current rows
///     digest VERSION     the same of that version; the server waits until ranks have trained it
///     row FEATURE ID     value, state, hits, last update, tier
///     rows FEATURE ID... {"version", "rows"}
///     hot FEATURE COUNT  the ids with the most updates
///     run                number of the last run
///     lag                {"version", "primary", "lag", "following"} of a replica, else nothing
///
/// Blanks separate words. A word with blanks is quoted; a backslash precedes each quotation mark
/// and backslash inside.
std::string answer_to(const std::string& question, RowInspection& rows);

std::string json_of(const RowDescription& row);
std::string json_of(const ReplicaLag& lag);

}  // namespace strata
