/// Records which runs have started in a checkpoint folder that has no checkpoint yet: rows that
/// servers have saved for such a run, once it has ended, belong to no checkpoint, and the next run
/// may start over.
///
///     FOLDER/runs-without-checkpoint.json   {"runs": [...]}; removed with the first checkpoint
///
/// A run is recorded before servers learn of it. So if saved rows must not be
/// replaced, their checkpoint is in this folder or in another one.
///
/// Threads  one, of the process that saves manifests.
/// Errors   UserError: a folder that another run saves to; a file that is damaged.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace strata {

/// Records a run that starts from first values, durably; returns the earlier ones, which have
/// ended.
std::vector<std::uint64_t> note_run(const std::string& folder, std::uint64_t run);

/// Called when the folder has a checkpoint.
void forget_runs(const std::string& folder);

}  // namespace strata
