/// Says what ranks commit to their disks with each step, and finds it again: what `--resume` of such a
/// folder reads before anything is planned.
///
/// Every rank has a folder rank-NNNNN of its own (disk/chunk_file.h) and the same text in it.
///
/// Errors  UserError: no such folder, a text that is not ours.
#pragma once

#include <string>

#include "strata/checkpoint/saver.h"
#include "strata/optim/loss_scale.h"

namespace strata {

/// What stands beside the states of a step.
struct DiskCommit {
  TrainingPosition position;
  LossScale scale;
  int ranks = 1;          ///< that commit together
  bool first = true;      ///< as far as the rank knows, others may have committed nothing yet
  std::string layout;     ///< of this rank: what its chunks are
  std::string recipe;     ///< effective, YAML
  std::string decisions;  ///< the plan's (decisions_text()): a resumed run follows them
};

std::string to_text(const DiskCommit& commit);

/// `step` is the file's; `where` names it in errors.
DiskCommit parse_commit(std::int64_t step, const std::string& text, const std::string& where);

std::string rank_folder(const std::string& path, int rank);

/// Whether a rank of so many has committed there for the first time.
bool is_first_commit(const std::string& folder, int ranks);

/// Whether all ranks of a run have committed a step in the folder, as far as their folders are here. A
/// first commit that a crash has interrupted is none: nothing can go on from it.
bool holds_commits(const std::string& path);

/// The last step that all ranks whose folders are here have committed.
DiskCommit last_commit(const std::string& path);

}  // namespace strata
