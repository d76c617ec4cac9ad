/// Runs a schedule on clocks instead of devices, with the same programs and the same interpreter
/// but no tensors.
///
/// A send takes no time of its own; its message arrives one transfer later, independently of other
/// messages. A recompute costs its layer's forward. A tied weight or gradient takes the mean rate
/// of the values. The gradient norm is a collective: no rank leaves it before the last has arrived.
/// Replicas are assumed to be in step: fetches and reductions of a rank run one at a time and
/// overlap with its compute, which waits for what it needs. The exchange of updated weights does
/// not overlap.
///
/// If the host updates layers, a rank has executors in addition to its compute, each of which runs
/// one task at a time: weights to the device, gradients to the host, updates on the host, and reads
/// and writes of what lives on disk. An update starts when its gradient is on the host and its
/// states have been read; it uses a staging buffer from the read to the end of the write. The
/// layer's next fetch waits for the update, and for the write if weights live on disk, also in the
/// next step. Such a step is therefore simulated after another one, with what that one leaves
/// unfinished.
///
/// A device whose host enqueues its work (CostTable::launch) has a clock of its own in addition
/// to its host's. The host starts a step when the device has completed the previous one. It
/// enqueues the kernels of an action one by one, a recorded segment at once, and a receive not
/// before the sender's host has enqueued the send. An action starts when its first kernel has been
/// enqueued and the device is free. It ends when its work is done, at the earliest when its last
/// kernel, which is as long as the others, was enqueued and run.
///
/// Ranks that share a device (CostTable::devices) share its clock. The device does one thing at a
/// time, in the order of the hosts' launches; when it waits for one of them, the others wait, too.
/// Replicas and tensor-parallel ranks on one device are in step, so each task takes as many times
/// longer (shared_devices.h).
///
/// Units   seconds from the start of the step.
/// Cost    linear in the number of actions.
/// Errors  InternalError if the programs block each other; validate() reports where and why.
#pragma once

#include <vector>

#include "strata/base/track_trace.h"
#include "strata/layout/costs.h"
#include "strata/layout/dataflow.h"
#include "strata/schedule/action.h"
#include "strata/schedule/segments.h"
#include "strata/schedule/trace.h"

namespace strata {

/// What one rank did and when.
struct RankTimeline {
  double busy_seconds = 0;  ///< forward, recompute, backward, update on the device
  double idle_seconds = 0;  ///< the rest of the step
  /// the part of idle_seconds in which compute waited for weights
  double fetch_wait_seconds = 0;
  /// the part in which it waited for gradients to reach the host
  double offload_wait_seconds = 0;
  double launch_wait_seconds = 0;  ///< the part in which a device waited for launches
  int launches = 0;                ///< kernels launched one by one, outside of recorded segments
  /// per event: when its device started it; empty: the device is not shared
  std::vector<double> turns;
  std::vector<TrackEvent> tracks;  ///< by their start in the program
  /// per action of the program, in order; the event of a receive is its wait
  std::vector<TraceEvent> events;
};

/// The position of an action in the programs.
struct ActionRef {
  int rank = 0;
  int position = 0;
};

struct Simulation {
  double step_seconds = 0;
  double bubble = 0;  ///< idle fraction of all ranks' time
  std::vector<RankTimeline> ranks;
  std::vector<ActionRef> order;  ///< all actions by begin; receives by end
};

/// Seconds of collectives between replicas, per layer; empty: they take no time.
struct CollectiveSeconds {
  std::vector<double> fetch;   ///< to gather weights
  std::vector<double> reduce;  ///< to sum gradients
  std::vector<double> gather;  ///< to exchange updated weights
  // From the end of one of these to its arrival; others use the network meanwhile.
  double gather_latency = 0;  ///< also of a fetch
  double reduce_latency = 0;
  double norm_latency = 0;  ///< of the sums of squares and losses
};

/// The seconds that executors and copy streams spend on a layer of which a part lives on the host.
struct LayerTierSeconds {
  bool updates_on_host = false;
  double fetch_seconds = 0;           ///< copy of its weights to the device
  double offload_seconds = 0;         ///< copy of its gradients to the host
  double update_seconds = 0;          ///< update on the host
  double fetch_read_seconds = 0;      ///< its weights from disk, before they go to the device
  double update_read_seconds = 0;     ///< from disk, before its update
  double update_write_seconds = 0;    ///< to disk, after its update
  double gradient_write_seconds = 0;  ///< to disk, before its update
  bool weights_on_disk = false;       ///< a fetch waits for that write
  bool comes_back = false;            ///< updated weights are copied to the device without a fetch
  int gradient_buffers = 0;           ///< TierLayout::gradient_buffers
  double activations_fetch_seconds = 0;    ///< inputs of a full micro-batch, to the device
  double activations_offload_seconds = 0;  ///< the same, to the host
};
/// Per layer; empty: the host updates none.
using TierSeconds = std::vector<LayerTierSeconds>;

/// Per rank: the recorded segments that its device repeats; empty: every action is performed.
using RecordedPrograms = std::vector<std::vector<Segment>>;

/// The rank's row of a timeline: the events and, between them, its waits as a fetch
/// (kPrefetchWeights) or an offload (kOffloadGradients).
std::vector<TraceEvent> row_of(const RankTimeline& rank);

/// The tracks of one step among many: work that continues after its end is drawn at its begin,
/// where the previous step's work continues.
std::vector<TrackEvent> tracks_within(const RankTimeline& rank, double step_seconds);

Simulation simulate(const Schedule& schedule, const Dataflow& dataflow, const Partition& partition,
                    const CostTable& costs, const CollectiveSeconds& collectives = {},
                    const TierSeconds& tier_seconds = {}, const RecordedPrograms& recorded = {});

}  // namespace strata
