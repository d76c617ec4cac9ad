/// Turns a search over meshes into the plan that a claim shows: what Strata would do on the same
/// machines.
#pragma once

#include <string>

#include "strata/claim/claim.h"
#include "strata/claim/claim_machines.h"
#include "strata/claim/mesh_estimate.h"

namespace strata {

/// What the paper reports of the same training.
struct PublishedRate {
  std::string device;                   ///< "A100"
  double published_flops_a_second = 0;  ///< of a device; 0: not stated
  bool recomputes = false;              ///< the paper counts the operations of a recompute
  /// Of a step of the paper's mesh and kernels in Strata's simulator; 0: not simulated.
  double simulated_seconds = 0;
};

/// A training on Selene with one setting for every claim of Megatron-LM: published kernels take its
/// bytes a parameter and send divided messages (arXiv 2104.04473, section 4.1); Strata's train in
/// bf16.
DecoderTraining selene_training(const DecoderShape& shape, std::int64_t samples,
                                DecoderKernels kernels);

StrataPlan strata_plan(const DecoderTraining& training, int ranks, const PublishedRate& published);

/// The shown form of a given mesh.
StrataPlan shown_plan(const DecoderTraining& training, const DecoderPlan& found,
                      const PublishedRate& published);

/// "3,072"
std::string grouped(std::int64_t count);

}  // namespace strata
