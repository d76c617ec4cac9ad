/// Remembers which runs have begun in a checkpoint folder that has no checkpoint yet: what servers have saved
/// of rows for such a run, when it has ended, belongs to no checkpoint, and the next one may begin anew.
///
///     FOLDER/runs-without-checkpoint.json   {"runs": [...]}; gone with the first checkpoint
///
/// A run is noted before servers hear of it; so of saved rows that nobody may begin anew either the folder
/// has the checkpoint, or another folder does.
///
/// Threads  one, of the process that saves manifests.
/// Errors   UserError: a folder that another run saves to; a file that is damaged.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace strata {

/// Notes a run that begins anew, durably; returns those that have before it, which are over.
std::vector<std::uint64_t> note_run(const std::string& folder, std::uint64_t run);

/// There is a checkpoint.
void forget_runs(const std::string& folder);

}  // namespace strata
