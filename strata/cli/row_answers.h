/// Reads the questions of `strata embed-server --ask` and writes what a server of rows answers.
///
/// Errors  UserError: no such question, a number that is missing; else as RowInspection.
#pragma once

#include <string>

#include "strata/rowserver/wire/inspection.h"

namespace strata {

/// The answer to one of these, as JSON, except for metrics:
///
///     metrics            counts in the text format of Prometheus
///     sizes              rows and bytes of each table
///     digest             {"version", "digest"} of the current rows
///     digest VERSION     the same of that version, for which the server waits while ranks train
///     row FEATURE ID     value, state, hits, last update, tier
///     rows FEATURE ID... {"version", "rows"}
///     hot FEATURE COUNT  the ids with the most updates
///     run                number of the last run
///     lag                {"version", "primary", "lag", "following"} of a replica, else nothing
///
/// Blanks separate words; a word with blanks stands in quotation marks, with a backslash before each mark and
/// backslash inside.
std::string answer_to(const std::string& question, RowInspection& rows);

std::string json_of(const RowDescription& row);
std::string json_of(const ReplicaLag& lag);

}  // namespace strata
