/// Finds a mesh for a recipe that asks for one (mesh.auto).
///
/// Errors  UserError: no mesh of that many ranks fits.
#pragma once

#include "strata/plan/machine_profile.h"
#include "strata/plan/mesh_search.h"
#include "strata/train/recipe.h"

namespace strata {

/// The meshes that mesh.auto chooses from, best first: on this machine and those of the other processes, whose GPUs
/// ranks share where there are fewer; by assumed rates, so the same in every process.
MeshSearch search_mesh(const Recipe& recipe);

/// On a machine that is not here, or as many of them as give each rank a GPU.
MeshSearch search_mesh(const Recipe& recipe, const MachineProfile& machine);

/// With mesh.auto, the mesh that the search finds.
Recipe with_mesh(Recipe recipe);
Recipe with_mesh(Recipe recipe, const MachineProfile& machine);

}  // namespace strata
