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
};

StrataPlan strata_plan(const DecoderTraining& training, int ranks, const PublishedRate& published);

/// The shown form of a given mesh.
StrataPlan shown_plan(const DecoderTraining& training, const DecoderPlan& found,
                      const PublishedRate& published);

/// "3,072"
std::string grouped(std::int64_t count);

}  // namespace strata
