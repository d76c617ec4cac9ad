/// Runs a schedule on clocks instead of devices: the same programs, the same interpreter, no
/// tensors.
///
/// A send takes no time of its own; its message arrives a transfer later, however many are on the
/// way. A recompute costs its layer's forward. A tied weight or gradient travels at the mean rate
/// of the values. The gradient norm is a collective: no rank leaves it before the last has come.
/// Replicas are taken to be in step: fetches and reductions of a rank run one after another beside
/// its compute, which waits for what it needs; the exchange of updated weights runs alone.
///
/// Where the host updates layers, a rank has lanes beside its compute, and each does one thing after
/// another: weights to the device, gradients to the host, updates there, and reads and writes of what
/// lives on disk. An update starts when its gradient has landed and its states have been read; it has a
/// staging slab from the read to the end of the write. The next fetch of the layer waits for the update,
/// and of weights on disk for their write, in the next step, too. So such a step is simulated behind
/// another one, with what that one leaves on the lanes.
///
/// A device that is given its work (CostTable::launch) has a clock of its own beside its host's. The host
/// begins a step when the device has ended the one before; it gives an action's kernels one after another, a
/// recorded segment at once, and a receive not before its sender's host has given what it waits for. An action
/// begins when its first kernel has been given and the device is free, and ends when its work is done, but not
/// before the last kernel, which is as long as the others, was given and done.
///
/// Ranks that share a device (CostTable::devices) have one clock: the device does one thing after another, in the
/// order in which their hosts give it, and what one of them waits for there, the others wait for, too. Replicas and
/// slices on one device are in step, so that each work takes as many times as long (shared_devices.h).
///
/// Units   seconds from the start of the step.
/// Cost    linear in the number of actions.
/// Errors  InternalError when the programs block each other; validate() says where and why.
#pragma once

#include <vector>

#include "strata/base/lane_trace.h"
#include "strata/schedule/action.h"
#include "strata/schedule/costs.h"
#include "strata/schedule/dataflow.h"
#include "strata/schedule/segments.h"
#include "strata/schedule/trace.h"

namespace strata {

/// What one rank did and when.
struct RankTimeline {
  double busy_seconds = 0;          ///< forward, recompute, backward, update on the device
  double idle_seconds = 0;          ///< the rest of the step
  double fetch_wait_seconds = 0;    ///< of it, compute that waited for weights
  double offload_wait_seconds = 0;  ///< of it, waiting for gradients to land on the host
  double launch_wait_seconds = 0;   ///< of it, in which a device waited to be given work
  int launches = 0;                 ///< kernels given one by one, outside of recorded segments
  std::vector<double> turns;  ///< one an event: when its device came to it; empty: only this rank's
  std::vector<LaneEvent> lanes;    ///< in the order of their start in the program
  std::vector<TraceEvent> events;  ///< one an action of the program, in its order; a receive's
                                   ///< event is its wait
};

/// An action's place in the programs.
struct ActionRef {
  int rank = 0;
  int position = 0;
};

struct Simulation {
  double step_seconds = 0;
  double bubble = 0;  ///< idle fraction of all ranks' time
  std::vector<RankTimeline> ranks;
  std::vector<ActionRef> order;  ///< all actions by time: of their begin; receives, of their end
};

/// Seconds of what replicas do together, per layer; empty: it takes no time.
struct CollectiveSeconds {
  std::vector<double> fetch;   ///< to collect weights
  std::vector<double> reduce;  ///< to add gradients
  std::vector<double> gather;  ///< to exchange updated weights
};

/// Of a layer of which something lives on the host: what its lanes do for it.
struct LayerLanes {
  bool updates_on_host = false;
  double fetch_seconds = 0;                ///< its weights' way to the device
  double offload_seconds = 0;              ///< its gradients' way to the host
  double update_seconds = 0;               ///< there
  double fetch_read_seconds = 0;           ///< its weights from disk, before they go to the device
  double update_read_seconds = 0;          ///< from disk, what its update needs
  double update_write_seconds = 0;         ///< to disk, what its update has made
  bool weights_on_disk = false;            ///< a fetch waits for that write
  bool comes_back = false;                 ///< updated weights go to the device without a fetch
  int gradient_buffers = 0;                ///< TierLayout::gradient_buffers
  double activations_fetch_seconds = 0;    ///< of a full micro-batch's inputs
  double activations_offload_seconds = 0;  ///< the same
};
/// Per layer; empty: the host updates none.
using LaneSeconds = std::vector<LayerLanes>;

/// Per rank: what its device was given once and repeats; empty: every action is performed.
using RecordedPrograms = std::vector<std::vector<Segment>>;

/// What the rank's row of a timeline shows: the events, and between them what it waited for, as a fetch
/// (kPrefetchWeights) or an offload (kOffloadGradients).
std::vector<TraceEvent> row_of(const RankTimeline& rank);

/// The lanes of one step among many: what they still do when it ends, they did at its begin for the step
/// before.
std::vector<LaneEvent> lanes_within(const RankTimeline& rank, double step_seconds);

Simulation simulate(const Schedule& schedule, const Dataflow& dataflow, const Partition& partition,
                    const CostTable& costs, const CollectiveSeconds& collectives = {},
                    const LaneSeconds& lanes = {}, const RecordedPrograms& recorded = {});

}  // namespace strata
