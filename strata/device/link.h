/// Copies flat buffers between a device and host memory, both ways at once, alongside the rank.
///
/// On a CPU the device is a part of host memory, and the link can be slowed down to what a bus would do:
/// what is offloaded then behaves as on a machine with a device. A device that has a queue copies itself
/// (copy_stream.h says when its bytes may be given back), at its own rate.
///
/// What it does is written down for a trace, if one is given.
///
/// Units    bytes a second, each way; seconds a copy. 0: as fast as memory.
/// Threads  the rank's; copies run on two executors, one a direction, each in the order of submission.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "strata/base/executor.h"
#include "strata/base/lane_trace.h"
#include "strata/device/copy_stream.h"
#include "strata/device/device.h"

namespace strata {

struct LinkOptions {
  double bytes_per_second = 0;  ///< of a CPU's alone, as the latency
  double latency_seconds = 0;
};

class Link {
 public:
  /// `trace` outlives the link.
  explicit Link(LinkOptions options = {}, LaneTrace* trace = nullptr, Device device = {})
      : Link(options, trace, Stream(device), Stream(device)) {}
  /// On streams that are there already, of one device.
  Link(LinkOptions options, LaneTrace* trace, Stream to_device, Stream to_host);

  /// Contiguous tensors of one size and type. Begins when `after` have happened. `layer`: for the trace.
  Completion to_device(at::Tensor device, at::Tensor host, std::vector<Completion> after = {},
                       int layer = -1);
  Completion to_host(at::Tensor host, at::Tensor device, std::vector<Completion> after = {},
                     int layer = -1);

  std::int64_t bytes_to_device() const { return bytes_to_device_; }
  std::int64_t bytes_to_host() const { return bytes_to_host_; }

 private:
  Completion copy(LaneKind kind, at::Tensor to, at::Tensor from, std::vector<Completion> after,
                  int layer);
  Completion copy_on_host(LaneKind kind, at::Tensor to, at::Tensor from,
                          std::vector<Completion> after, int layer);

  LinkOptions options_;
  LaneTrace* trace_;
  std::int64_t bytes_to_device_ = 0;
  std::int64_t bytes_to_host_ = 0;
  std::array<double, 2> free_seconds_{};  // by executor: when it has done what was submitted
  // In, out: on the host or on the device.
  std::array<std::unique_ptr<Executor>, 2> executors_;
  std::array<std::unique_ptr<CopyStream>, 2> copy_streams_;
};

}  // namespace strata
