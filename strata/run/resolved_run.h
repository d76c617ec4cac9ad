/// Decides, once per run, what its recipe leaves open: the mesh of its ranks, the samples of a
/// micro-batch and the rates of its machine.
///
///     const ResolvedRun run = resolve(load_recipe(path, {}));
///     World world = join_world(run);
///     const PlannedRun planned = agree_on_plan(world, run);
///
/// Errors  UserError: no mesh of that many ranks fits; a machine without memory for the model; an
///         open micro-batch in a run of several processes, which could measure differently.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "strata/plan/ledger/zero_bytes.h"
#include "strata/plan/machine_profile.h"
#include "strata/plan/search/mesh_search.h"
#include "strata/run/micro_batch_choice.h"
#include "strata/task/recipe.h"

namespace strata {

struct ResolvedRun {
  Recipe recipe;                                    ///< with the final mesh and micro-batch
  MachineProfile machine;                           ///< as measured, or from its file
  std::optional<MeshSearch> search = std::nullopt;  ///< only for mesh.auto
  /// Only for an open micro-batch.
  std::optional<MicroBatchChoice> micro_batch = std::nullopt;
  std::string fingerprint;  ///< equal in all processes of the run
  /// Called with the names of the layers that are measured next; may be empty.
  std::function<void(const std::string&)> on_measuring = {};
  /// Called with a sentence for the user, such as which rank stalls; from any thread; may be empty.
  std::function<void(const std::string&)> on_notice = {};
};

struct ResolveOptions {
  bool measure = true;  ///< layers, for an open micro-batch; otherwise their seconds are assumed
  std::function<void(const std::string&)> on_measuring = {};  ///< as in ResolvedRun
};

/// Resolves for this machine and those of the other processes; ranks share GPUs if there are fewer.
/// A mesh is searched with assumed rates, so that it is the same in every process.
ResolvedRun resolve(Recipe recipe, const ResolveOptions& options = {});

/// Resolves for another machine, or for as many of them as give each rank a GPU. `convention`:
/// another system's bytes per parameter; null: ours.
ResolvedRun resolve(Recipe recipe, const MachineProfile& machine,
                    const ParameterBytes* convention = nullptr);

}  // namespace strata
