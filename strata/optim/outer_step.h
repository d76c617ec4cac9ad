/// Moves the weights that replicas share by what they have learned apart: an outer step.
///
/// Replicas take `every` inner steps each, by their own gradients. Then the mean of their weights
/// is compared with the shared weights, from which all of them began:
///
///     gradient = shared - mean
///     momenta  = momentum momenta + gradient
///     shared  -= learning_rate (gradient + momentum momenta)     with nesterov, else momenta
///
/// and all replicas continue from the shared weights. With momentum 0 and learning rate 1 these are
/// the mean itself, and no state is kept: local SGD.
///
/// Source   Stich 2019, "Local SGD" (arXiv 1805.09767); Douillard et al. 2023, "DiLoCo" (arXiv
///          2311.08105).
/// Threads  the calling thread's pool; cuts and threads change no bit.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "strata/base/options.h"

namespace strata {

/// In the files of checkpoints.
inline constexpr const char* kOuterWeight = "outer_weight";
inline constexpr const char* kOuterMomentum = "outer_momentum";
inline constexpr const char* kReplicaWeight = "replica_weight";

struct OuterOptions {
  std::int64_t every = 0;  ///< inner steps before an outer step; 0: replicas do not train apart
  double learning_rate = 0.7;
  double momentum = 0.9;
  bool nesterov = true;

  bool is_on() const { return every > 0; }
  /// Whether the shared weights become the mean.
  bool averages() const { return learning_rate == 1 && momentum == 0; }
  /// Whether all replicas have the shared weights after so many steps.
  bool ends_round(std::int64_t steps_done) const { return steps_done % every == 0; }
};

void describe(OptionSet& set, const std::string& prefix, OuterOptions& options);

/// What every replica keeps for each weight, in fp32: the shared weights and their momenta, as far
/// as they are needed.
std::vector<std::string> outer_states(const OuterOptions& options);

/// One layer's trained weights.
struct OuterRange {
  std::span<float> mean;     ///< receives the new weights
  std::span<float> shared;   ///< the last shared weights; receives the new ones
  std::span<float> momenta;  ///< empty without momentum
};

void outer_step(const OuterOptions& options, const OuterRange& range);

}  // namespace strata
