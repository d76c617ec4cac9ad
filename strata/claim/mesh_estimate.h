/// Finds the fastest mesh of thousands of ranks for a decoder: pipeline x data x tensor, ZeRO 0 or
/// 1, virtual stages, recompute and size of a micro-batch.
///
/// Every candidate is estimated with closed forms over the planner's own pieces: the stages of an
/// even cut (plan/search/stage_estimate.h), the bytes that replicas shard
/// (plan/simulate/shard_bytes.h), the micro-batches that a rank holds (schedule/builders.h) and the
/// seconds of collectives (plan/simulate/communication.h). The best candidates are then planned
/// like any mesh: with programs, simulator and ledger. mesh_estimate_test.cpp compares both.
///
/// ZeRO 2 and 3 are left out: with a pipeline they exchange gradients or weights in every
/// micro-batch, which search_mesh() tries on small meshes.
///
/// Cost    microseconds a candidate; about a second for 10,000 ranks, most of it for the plans.
/// Errors  UserError `[claim.mesh]` if nothing fits.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "strata/claim/decoder_costs.h"
#include "strata/layout/mesh.h"
#include "strata/plan/search/planner.h"

namespace strata {

/// A decoder, the size of its mini-batch and the machines that train it.
struct DecoderTraining {
  DecoderShape shape;
  std::int64_t samples = 1;  ///< of a step
  MachineProfile machine;
  DecoderKernels kernels = DecoderKernels::kStrata;
  /// Bytes a parameter (plan/ledger/zero_bytes.h); "split" are those of Strata in bf16.
  std::string convention = "split";
  /// Each tensor-parallel rank sends its part of a message to the next stage, which gathers them
  /// (arXiv 2104.04473, section 4.1).
  bool scatters_messages = false;
};

/// How the ranks divide a training.
struct DecoderMesh {
  Mesh axes = {};
  std::int64_t micro_batch = 1;  ///< samples
  int virtual_stages = 1;        ///< per rank
  int zero = 0;
  bool sequence_parallel = false;
  Recompute recompute = Recompute::kCheap;  ///< inside layers
  bool recomputes_layers = false;           ///< every block runs again as a whole

  int micro_batches(std::int64_t samples) const {
    return static_cast<int>(samples / (axes[Axis::kData] * micro_batch));
  }
};

struct MeshEstimate {
  DecoderMesh mesh;
  double step_seconds = 0;
  double bytes = 0;  ///< on the fullest rank
};

MeshEstimate estimate(const DecoderTraining& training, const DecoderMesh& mesh);

/// Every candidate, in the order of legal_meshes().
std::vector<MeshEstimate> estimate_meshes(const DecoderTraining& training, int ranks);

struct DecoderPlan {
  DecoderMesh mesh;
  Plan plan;
  int candidates = 0;  ///< that were estimated
};
/// Estimates every candidate, plans those with the fewest seconds of those that fit, and returns
/// the fastest plan whose ledger fits.
DecoderPlan search_meshes(const DecoderTraining& training, int ranks);

/// The even cut of the blocks, with the embedding on the first stage and the head on the last.
Partition even_partition(const DecoderShape& shape, int stages);

/// What the planner needs for the mesh; its memory has no budget.
PlanRequest decoder_request(const DecoderTraining& training, const DecoderMesh& mesh);

/// The same mesh with programs, simulated seconds and the ledger.
Plan planned(const DecoderTraining& training, const DecoderMesh& mesh);

/// "1f1b, micro-batch 2, recompute full"
std::string schedule_text(const DecoderMesh& mesh);
/// "pp 64, dp 6, tp 8, zero 1"
std::string mesh_text(const DecoderMesh& mesh);

}  // namespace strata
