/// Rejects meshes that contradict themselves or the run, and names the nearest legal mesh.
///
/// Errors  UserError `[plan.mesh]` at the place that `where` returns for the field.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "strata/plan/plan_options.h"

namespace strata {

/// Limits of a mesh; 0: unknown here, so not checked.
struct MeshLimits {
  std::int64_t mini_batch = 0;  ///< samples of a step: every replica needs at least one
  std::int64_t layers = 0;      ///< every stage needs at least one
  std::int64_t heads = 0;       ///< tensor-parallel ranks divide them evenly
  std::int64_t kv_heads = 0;    ///< grouped-query heads: the same
  std::int64_t context = 0;     ///< tokens of a sample: sequence parallelism divides them evenly
  bool has_tokens = true;       ///< whether ranks of cp may divide samples
  bool in_ring = true;          ///< whether they may attend in a ring: not with a sparse pattern
  std::int64_t world = 0;       ///< ranks that were started
};

/// Returns where a field was set, such as "recipe.yaml:3:9".
using PlaceOf = std::function<std::string(const std::string& field)>;

void check_mesh(const MeshOptions& mesh, const MeshLimits& limits, const PlaceOf& place_of = {});

/// Whether the sizes of the axes are within the limits; ignores `world`.
bool is_legal(const Mesh& mesh, std::int64_t virtual_stages, const MeshLimits& limits);

/// Whether the ranks of cp and tp can divide the tokens of samples, and their heads where these are
/// exchanged, and attend as requested. True for unknown limits.
bool divides_tokens(const MeshOptions& mesh, const MeshLimits& limits);

/// All legal meshes of exactly `ranks` ranks, ascending by the axes in the order of
/// kModelAxesFirst.
std::vector<Mesh> legal_meshes(int ranks, std::int64_t virtual_stages, const MeshLimits& limits);

}  // namespace strata
