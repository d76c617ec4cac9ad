/// Makes the cost table of a model: bytes by shape inference, seconds from FLOPs or from a probe.
///
/// Shapes  batch_inputs: those of a full micro-batch.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "strata/nn/sequence.h"
#include "strata/schedule/costs.h"

namespace strata {

struct CostRequest {
  std::vector<TensorSpec> batch_inputs;
  std::int64_t samples = 0;      ///< of the mini-batch
  std::int64_t micro_batch = 0;  ///< samples of a full micro-batch
  int optimizer_slots = 2;
  at::ScalarType precision = at::kFloat;  ///< 16 bit: the optimizer keeps fp32 weights beside
  bool keep_intermediates = false;        ///< recompute: none
};

/// Bytes exactly, seconds as FLOPs at kAssumedFlopsPerSecond: enough to refuse what can't fit
/// before anything is allocated.
CostTable byte_costs(const Sequence& model, const CostRequest& request);

inline constexpr double kAssumedFlopsPerSecond = 50e9;

struct ProbeOptions {
  int ranks = 1;  ///< that run at once and share the memory's bandwidth
  int threads_per_rank = 1;
  std::string optimizer = "adamw";
  std::string cache_file;  ///< empty: no cache
};

/// Replaces the seconds of `costs` by measured ones: each distinct layer once, forward and backward
/// and update, on as many ranks at once as will train. Results are cached by layer, sizes, ranks,
/// threads and machine.
void probe_seconds(CostTable& costs, const Sequence& model, const CostRequest& request,
                   const ProbeOptions& options);

/// $XDG_CACHE_HOME/strata/probe.json or ~/.cache/strata/probe.json; empty if neither is set.
std::string default_probe_cache();

}  // namespace strata
