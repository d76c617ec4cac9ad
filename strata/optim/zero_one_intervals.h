/// Decides what replicas of 0/1 Adam exchange in an update, counted from 1.
///
/// Until freeze_step some updates sum gradients and refresh the mean squared gradients; the steps
/// from one to the next double after every refresh_doubling of them. All other updates keep the
/// gradients apart, and synchronise the replicas by signs. After freeze_step there are no
/// refreshes, and the steps from one synchronisation to the next double after every local_doubling
/// steps, up to local_most.
///
/// No torch.
///
/// Source   Lu et al. 2022, "0/1 Adam" (arXiv 2202.06009), sections 4 and 6: the sets T_v and T_u.
#pragma once

#include <cstdint>

#include "strata/optim/optimizer_options.h"

namespace strata {

bool refreshes_variances(const OptimizerOptions& options, std::int64_t update);

/// The refreshes until this update, itself included.
std::int64_t count_refreshes(const OptimizerOptions& options, std::int64_t update);

/// Whether all replicas have the same weights after this update.
bool synchronises(const OptimizerOptions& options, std::int64_t update);

/// Synchronisations a step, of the steps that have the interval of this update.
double synchronisations_per_step(const OptimizerOptions& options, std::int64_t update);

}  // namespace strata
