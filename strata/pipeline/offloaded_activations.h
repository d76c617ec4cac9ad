/// Keeps on the host, between a layer's forward and its recompute, the inputs that the recompute starts from.
///
/// Device bytes follow the program, not the clock: an offload waits for the one before and lets its bytes
/// go; a fetch takes its bytes when it starts. Host memory is kept for the next ones of the same size.
///
/// A device that works behind the rank's back waits in the rank's place. Its memory is given out in the
/// order of the compute stream: a copy into it goes behind what was given to that stream, and it is given
/// out again behind the copies from and to it.
///
/// Source   Rajbhandari et al. 2021 (ZeRO-Infinity), section 5.1.
/// Threads  the rank's; copies run on the link's lanes.
/// Errors   InternalError: inputs that are not there, or there twice.
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
  /// `host`: charged for what lies there; null: nobody.
  /// `compute`: where the rank's work is done. `trace`: of waits within a recompute; null: nobody draws them.
  explicit OffloadedActivations(Link& link, Stream compute = Stream::compute({}),
                                MemoryAccount* host = nullptr, TraceLog* trace = nullptr)
      : link_(link), compute_(std::move(compute)), host_(host), trace_(trace) {}
  ~OffloadedActivations();
  OffloadedActivations(const OffloadedActivations&) = delete;
  OffloadedActivations& operator=(const OffloadedActivations&) = delete;

  /// Integers, which all layers share, stay where they are.
  void offload(int layer, int micro_batch, std::vector<at::Tensor> inputs);
  void fetch(int layer, int micro_batch);
  std::vector<at::Tensor> take(int layer, int micro_batch);  ///< waits for them

  void clear();  ///< of a step that did not end

  double waited_seconds() const { return waited_seconds_; }

 private:
  struct Run {
    std::vector<at::Tensor> inputs;  // on the device: leaving, or coming back; else undefined
    std::vector<at::Tensor> host;    // flat, as long or longer; undefined: the input stays
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
  std::vector<at::Tensor> free_;  // of the host
  double waited_seconds_ = 0;
};

}  // namespace strata
