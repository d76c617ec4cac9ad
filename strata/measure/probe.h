/// Measures what each distinct layer of a model costs, in rounds over all of them, and caches it.
///
/// A device that works behind its rank's back is timed by its own events: each part of a layer
/// between two of them, behind copies that keep the device busy until the host has given all of it.
/// So what is measured is the layer's work without launches, and none of it finds its data in a
/// cache.
///
/// A round runs every layer once, forward, backward and update, on as many ranks at once as will
/// train: what disturbs the machine for a while disturbs a few rounds of all layers, not one layer
/// in all of them. The lower quartile of the rounds counts. Where they disagree, more rounds
/// follow.
///
/// Cost    about 0.1 s a distinct layer, four times that where rounds disagree; the bytes of
///         distinct layers on each rank, `most_bytes` at once (or one layer), which the system then
///         has again.
/// Errors  SystemError before anything is measured, where a layer needs more than its device has
///         free.
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
  int ranks = 1;  ///< that run at once and share the memory's bandwidth
  int threads_per_rank = 1;
  /// bytes of the layers that are measured together, on all ranks
  std::int64_t most_bytes = kProbeBytes;
  OptimizerKind optimizer = OptimizerKind::kAdamW;
  std::string cache_file;                       ///< empty: no cache
  std::function<double()> clock = now_seconds;  ///< seconds; called by all ranks
  std::function<Stream(Device)> stream =
      &Stream::compute;  ///< with a queue: its events are the clock
  std::function<std::int64_t(Device)> free_bytes = [](Device device) {
    return backend_of(device.kind).free_bytes(device.index);
  };
  /// Reports what is measured if it is expected to take longer than a second; may be empty.
  std::function<void(const std::string& layers)> tell = {};
};

/// What a layer's seconds are cached under, by layer: signature and shapes, precision, optimizer,
/// ranks and threads, the model of the device if it isn't the processor. The cache adds the
/// processor and libtorch.
std::vector<std::string> probe_keys(const Sequential& model, const CostRequest& request,
                                    const ProbeOptions& options);

/// Replaces the seconds of `costs` by measured ones.
void probe_seconds(CostTable& costs, const Sequential& model, const CostRequest& request,
                   const ProbeOptions& options);

/// $XDG_CACHE_HOME/strata/probe.json or ~/.cache/strata/probe.json; empty if neither is set.
std::string default_probe_cache();

}  // namespace strata
