/// Describes what ranks commit to their disks with each step, and reads it: `--resume` of such a
/// folder reads it before planning.
///
/// Every rank has its own folder rank-NNNNN (disk/chunk_file.h) with the same text.
///
/// Errors  UserError: no such folder, a text of another program.
#pragma once

#include <string>

#include "strata/checkpoint/saver.h"
#include "strata/optim/loss_scale.h"

namespace strata {

/// The description that is committed with the states of a step.
struct DiskCommit {
  TrainingPosition position;
  LossScale scale;
  int ranks = 1;          ///< as far as this rank knows, other ranks may not have committed yet
  bool first = true;      ///< meaning of this rank's chunks
  std::string layout;     ///< of this rank: what its chunks are
  std::string recipe;     ///< effective, YAML
  std::string decisions;  ///< decisions_text() of the plan, which a resumed run follows
};

std::string to_text(const DiskCommit& commit);

/// `step` is the step of the file; `where` names it in errors.
DiskCommit parse_commit(std::int64_t step, const std::string& text, const std::string& where);

std::string rank_folder(const std::string& path, int rank);

/// Whether the commit in the folder is the first of a rank in a run with this many ranks.
bool is_first_commit(const std::string& folder, int ranks);

/// Whether all ranks of a run have committed a step in the folder, as far as their folders are on
/// this machine. An interrupted first commit does not count: no run can resume from it.
bool holds_commits(const std::string& path);

/// The last step that all ranks whose folders are on this machine have committed.
DiskCommit last_commit(const std::string& path);

}  // namespace strata
