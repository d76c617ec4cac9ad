/// Decides, once for a run, what its recipe leaves open: the mesh of its ranks and the rates of its machine.
///
///     const ResolvedRun run = resolve(load_recipe(path, {}));
///     World world = join_world(run);
///     const PlannedRun planned = plan_run(world, run);
///
/// Errors  UserError: no mesh of that many ranks fits; a machine without memory for the model.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "strata/plan/machine_profile.h"
#include "strata/plan/search/mesh_search.h"
#include "strata/task/recipe.h"

namespace strata {

struct ResolvedRun {
  Recipe recipe;                                    ///< its mesh is the one that the ranks form
  MachineProfile machine;                           ///< by what was measured of it, or by its file
  bool is_here = true;                              ///< the machine is this one
  std::optional<MeshSearch> search = std::nullopt;  ///< of mesh.auto
  std::string fingerprint;                          ///< equal in all processes of the run
  /// Called with the layers that are measured next, for people who wait. May be empty.
  std::function<void(const std::string&)> on_measuring = {};
  /// Called with a sentence for people, such as which rank stalls; from any thread. May be empty.
  std::function<void(const std::string&)> on_notice = {};
};

/// On this machine and those of the other processes, whose GPUs ranks share where there are fewer. A mesh
/// is found by assumed rates, so it is the same in every process.
ResolvedRun resolve(Recipe recipe);

/// On a machine that is not here, or on as many of them as give each rank a GPU.
ResolvedRun resolve(Recipe recipe, const MachineProfile& machine);

}  // namespace strata
