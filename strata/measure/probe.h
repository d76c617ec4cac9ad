/// Measures the seconds of each distinct layer of a model, in rounds over all of them, and caches
/// them.
///
/// A device that works asynchronously is timed by its own events: each part of a layer lies between
/// two events, after copies that keep the device busy until the host has enqueued the whole part.
/// So the measurement excludes launches, and no part finds its data in a cache.
///
/// A round runs every layer once, forward, backward and update, on as many ranks in parallel as
/// will train. A temporary disturbance thus affects a few rounds of all layers, not all rounds of
/// one layer. The lower quartile of the rounds counts. If they disagree, more rounds follow.
///
/// Cost    about 0.1 s per distinct layer, four times that if rounds disagree; the bytes of
///         distinct layers on each rank, at most `most_bytes` at once (or one layer), freed
///         afterwards.
/// Errors  SystemError before measuring, if a layer needs more memory than its device has free.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "strata/base/measurement.h"
#include "strata/device/device.h"
#include "strata/measure/byte_costs.h"
#include "strata/optim/optimizer.h"
#include "strata/pipeline/layer_seconds.h"

namespace strata {

inline constexpr std::int64_t kProbeBytes = std::int64_t{1} << 30;

struct ProbeOptions {
  int ranks = 1;  ///< ranks that run in parallel and share the memory's bandwidth
  int threads_per_rank = 1;
  /// bytes of the layers that are measured together, on all ranks
  std::int64_t most_bytes = kProbeBytes;
  OptimizerKind optimizer = OptimizerKind::kAdamW;
  std::string cache_file;                       ///< empty: no cache
  std::function<double()> clock = now_seconds;  ///< seconds; called by all ranks
  std::function<Stream(Device)> stream =
      &Stream::compute;  ///< if it has a queue, its events are the clock
  std::function<std::int64_t(Device)> free_bytes = [](Device device) {
    return backend_of(device.kind).free_bytes(device.index);
  };
  /// Reports the layers to measure, if that is expected to take longer than a second; may be empty.
  std::function<void(const std::string& layers)> report = {};
};

/// A table of the request's model at a level.
struct LevelTable {
  Recompute level;
  CostTable* costs;
};

/// The cache key of each layer: signature and shapes, level, precision, optimizer, ranks and
/// threads, and the model of the device, unless it is the processor. The cache adds the processor
/// and libtorch.
std::vector<std::string> probe_keys(const Sequential& model, const CostRequest& request,
                                    const ProbeOptions& options);

/// Replaces the seconds of `tables` by measured ones: all in the same rounds, so that levels can be
/// compared. Returns the probe_keys() of each table.
std::vector<std::vector<std::string>> probe_seconds(const std::vector<LevelTable>& tables,
                                                    const Sequential& model,
                                                    const CostRequest& request,
                                                    const ProbeOptions& options);

/// $XDG_CACHE_HOME/strata/probe.json or ~/.cache/strata/probe.json; empty if neither is set.
std::string default_probe_cache();

}  // namespace strata
