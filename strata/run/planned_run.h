/// Plans a run: for this machine, with measured or estimated seconds, the same in every process; or
/// for another machine.
///
/// Errors  UserError when the model does not fit its budget, before anything is allocated; what
///         recipe, partitioner and builders refuse.
#pragma once

#include <string>
#include <vector>

#include "strata/comm/ranks.h"
#include "strata/nn/graph/sequential.h"
#include "strata/plan/ledger/zero_bytes.h"
#include "strata/plan/machine_profile.h"
#include "strata/plan/search/planner.h"
#include "strata/plan/search/shared_host.h"
#include "strata/run/resolved_run.h"
#include "strata/task/task_data.h"

namespace strata {

struct PlannedRun {
  Sequential model;
  Plan plan;
  MeshOptions mesh;
  int ranks = 1;
  int threads_per_rank = 1;
  /// The file of the probed seconds; empty: estimated, or measured by ranks that shared cores or a
  /// GPU.
  std::string probe_cache;
  std::vector<std::string> probe_keys;  ///< by layer
};

/// `probe`: measures the layers' seconds (cached) on the recipe's device, which must exist;
/// otherwise they are estimated from FLOPs. `world`: the processes that the ranks are divided
/// among; null: this process. `data`: the task's, if it is already open.
PlannedRun plan_run(const ResolvedRun& run, bool probe = true, const World* world = nullptr,
                    const TaskData* data = nullptr);

/// Plans for another machine by its profile, without measuring. `convention`: another system's
/// bytes per parameter; null: ours.
PlannedRun plan_run_elsewhere(const ResolvedRun& run, const ParameterBytes* convention = nullptr);

/// Plans the same in every process: process 0 measures and decides. `follow`: decisions_text() of
/// the run that this one resumes; empty: none.
PlannedRun agree_on_plan(World& world, const ResolvedRun& run, const std::string& follow = "",
                         const TaskData* data = nullptr);

/// What the ranks of one process need of this machine's processor, if they compute on it.
SharedHost shared_host(const PlannedRun& run, int processes = 1);

}  // namespace strata
