/// Holds what the clocks of a step's ranks share: the costs of the step, and the messages and
/// collectives through which ranks depend on each other.
///
/// Units  seconds from the start of the step.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "strata/base/philox.h"
#include "strata/plan/simulate/simulator.h"
#include "strata/schedule/messages.h"

namespace strata {

/// Sums the seconds of ranges of layers. A range of many layers recurs with every micro-batch and
/// is summed once, in layer order.
class ComputeSeconds {
 public:
  explicit ComputeSeconds(const CostTable& costs) : layers_(costs.layers) {}
  double operator()(LayerRange range, Op op);  ///< `op` computes

 private:
  enum Part { kForward, kBackward, kInputs, kWeights };
  static double of(const LayerCost& layer, Part part);

  const std::vector<LayerCost>& layers_;
  std::array<std::unordered_map<std::uint64_t, double>, 4> known_;
};

struct MessageHash {
  std::size_t operator()(const MessageKey& message) const {
    std::uint64_t hash = 0;
    for (const int part : message) hash = mix_key(hash, static_cast<std::uint64_t>(part));
    return hash;
  }
};

/// A message in transit.
struct Arrival {
  double enqueued = 0;  ///< when the sender's host has enqueued it
  double sent = 0;      ///< when it begins to leave the sender's device
  double seconds = 0;
};

/// A collective of all ranks: how many have arrived, and when the last one did.
struct Collective {
  int ranks = 0;
  double last_seconds = 0;
};

struct SharedClock {
  const CostTable* costs = nullptr;
  std::vector<double> link_free;      ///< per rank: when its last message has left
  std::vector<double> device_clocks;  ///< per device: when it has completed its queue
  int num_ranks = 0;
  double tie_seconds_per_byte = 0;
  const CollectiveSeconds* collective_seconds = nullptr;
  const TierSeconds* tier_seconds = nullptr;
  /// per layer: owners of the tied weights that it uses; empty: none
  std::vector<std::vector<int>> owners;
  const Dataflow* dataflow = nullptr;
  double rows_wait_seconds = 0;
  ComputeSeconds layer_seconds;
  const RecordedPrograms* recorded = nullptr;
  std::unordered_map<MessageKey, Arrival, MessageHash> arrivals;
  std::vector<Collective> collectives;

  /// The clock of a rank's device, which ranks on the same device share.
  double& clock_of(int rank) {
    return device_clocks[costs->devices.empty() ? rank : costs->devices.of_rank[rank]];
  }
  /// How many times longer a rank's work takes because ranks of other pipelines share its device.
  double times_as_long(int rank) const {
    return costs->devices.empty() ? 1 : costs->devices.times_as_long[rank];
  }

  /// Null: the host does not update the layer.
  const LayerTierSeconds* on_host(int layer) const {
    return tier_seconds->empty() || !(*tier_seconds)[layer].updates_on_host
               ? nullptr
               : &(*tier_seconds)[layer];
  }
};

/// The arguments must outlive the clock.
SharedClock make_shared_clock(const Schedule& schedule, const Dataflow& dataflow,
                              const CostTable& costs, const CollectiveSeconds& collectives,
                              const TierSeconds& tier_seconds, const RecordedPrograms& recorded);

}  // namespace strata
