/// Keeps the inputs of recomputed layers on the host between forward and recompute.
///
/// Device bytes follow the program instead of the clock: an offload waits for the previous one and
/// frees its bytes; a fetch allocates its bytes when it starts. Host buffers are reused for inputs
/// of the same size.
///
/// With a device that runs asynchronously, its streams wait instead of the rank. Device memory is
/// reused in the order of the compute stream: a copy into it follows the stream's earlier work, and
/// it is reused only after the copies from and to it.
///
/// Source   Rajbhandari et al. 2021 (ZeRO-Infinity), section 5.1.
/// Threads  the rank's; copies run on the link's executors or copy streams.
/// Errors   InternalError: inputs that are missing or present twice.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "strata/device/link.h"
#include "strata/schedule/trace.h"

namespace strata {

class MemoryAccount;

class OffloadedActivations {
 public:
  /// `host`: the account to charge; null: none. `compute`: the stream of the rank's work. `trace`:
  /// records waits within a recompute; null: not recorded.
  explicit OffloadedActivations(Link& link, Stream compute = Stream::compute({}),
                                MemoryAccount* host = nullptr, TraceLog* trace = nullptr)
      : link_(link), compute_(std::move(compute)), host_(host), trace_(trace) {}
  ~OffloadedActivations();
  OffloadedActivations(const OffloadedActivations&) = delete;
  OffloadedActivations& operator=(const OffloadedActivations&) = delete;

  /// Integers, which all layers share, stay on the device.
  void offload(int layer, int micro_batch, std::vector<at::Tensor> inputs);
  void fetch(int layer, int micro_batch);
  std::vector<at::Tensor> take(int layer, int micro_batch);  ///< waits for them

  void clear();  ///< drops inputs of an unfinished step

  double waited_seconds() const { return waited_seconds_; }

 private:
  struct Run {
    // on the device: being offloaded or fetched; else undefined
    std::vector<at::Tensor> inputs;
    std::vector<at::Tensor> host;  // flat, at least as long; undefined: the input stays
    std::vector<std::vector<std::int64_t>> shapes;
    Completion moved;  // the last of their copies
  };

  void end_offload();
  at::Tensor host_buffer(const at::Tensor& input);
  double wait(const Completion& event);  // returns when that began

  Link& link_;
  Stream compute_;
  MemoryAccount* host_;
  TraceLog* trace_;
  std::map<std::pair<int, int>, Run> runs_;  // (layer, micro-batch)
  Run* leaving_ = nullptr;
  std::vector<at::Tensor> free_;  // free host buffers
  double waited_seconds_ = 0;
};

}  // namespace strata
