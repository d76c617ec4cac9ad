/// Turns a recipe into what can run: model, plan and the trainer's options.
///
/// Errors  UserError when the model doesn't fit its budget, before anything is allocated; what
///         recipe, partitioner and builders refuse.
#pragma once

#include "strata/comm/ranks.h"
#include "strata/plan/machine_profile.h"
#include "strata/plan/mesh_search.h"
#include "strata/plan/planner.h"
#include "strata/plan/shared_host.h"
#include "strata/plan/tier_depth.h"
#include "strata/plan/zero_bytes.h"
#include "strata/train/recipe.h"
#include "strata/train/trainer.h"

namespace strata {

class LogData;

struct PlannedRun {
  Sequential model;
  Plan plan;
  MeshOptions mesh;  ///< the recipe's, or the one found for it
  int ranks = 1;
  int threads_per_rank = 1;
  /// The file that probed seconds are in; empty: estimated, or of ranks that wait for cores.
  std::string probe_cache;
  std::vector<std::string> probe_keys;  ///< by layer
};

/// What a recipe asks of a trainer beside its plan.
TrainerOptions trainer_options(const Recipe& recipe);

/// What `strata doctor` has measured here of the recipe's device and of what is beside it; of what it has
/// not, nothing is known.
MachineProfile this_machine(const Recipe& recipe);

/// The recipe on that machine: what it has is the budget where the recipe gives none.
Recipe on_machine(Recipe recipe, const MachineProfile& machine);

/// The meshes that mesh.auto chooses from, best first.
MeshSearch search_mesh(const Recipe& recipe, const MachineProfile& machine = {});

/// How deep a model of this shape could be, by what leaves the device; empty without a budget.
/// `convention`: of bytes a parameter (plan/zero_bytes.h), another system's; null: ours.
std::vector<TierDepth> largest_depths(const Recipe& recipe, const MachineProfile& machine,
                                      const ParameterBytes* convention = nullptr);

/// `probe`: measure the layers' seconds (cached) on the recipe's device, which must be there; else
/// estimate them from FLOPs. `processes`: among which the ranks are divided.
/// `data`: a recommender's, if they are open already.
PlannedRun plan_run(const Recipe& recipe, bool probe = true, int processes = 1,
                    const LogData* data = nullptr);

/// Which rates an estimate here takes its seconds from: those of `machine`, or assumed ones; a line of a plan.
std::string estimate_text(const Recipe& recipe, const MachineProfile& machine);

/// What the ranks of one of the processes ask of this machine's processor, if they compute on it.
SharedHost shared_host(const PlannedRun& run, int processes = 1);

/// For another machine, by what its profile says: nothing is measured.
PlannedRun plan_run(const Recipe& recipe, const MachineProfile& machine,
                    const ParameterBytes* convention = nullptr);

/// What the ranks of a run need from its recipe.
RanksOptions ranks_options(const Recipe& recipe);

/// What this processor is fast in, and whether the recipe's precision is slow here; empty if nobody
/// has measured it, or another device is asked for. `measure`: for 16 bit, measures where `strata doctor` has saved
/// nothing; else allocates nothing.
std::string precision_advice(const Recipe& recipe, bool measure);

/// Joins the processes of the run; `recipe` has to be the same in all.
World join_world(const Recipe& recipe);

/// The same plan in every process: process 0 measures and decides. `follow`: decisions_text() of the run
/// that this one goes on with; empty: none.
PlannedRun plan_run(World& world, const Recipe& recipe, const std::string& follow = "",
                    const LogData* data = nullptr);

}  // namespace strata
