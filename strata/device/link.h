/// Copies flat buffers between a device and host memory, in both directions at once, in parallel
/// with the rank.
///
/// On a CPU the device is a part of host memory, and the link can be slowed down to the rate of a
/// bus: offloading then behaves as on a machine with a device. A device with a queue copies by
/// itself at its own rate (copy_stream.h states when its bytes may be freed).
///
/// The copies are recorded in a trace, if there is one.
///
/// Units    bytes per second in each direction; seconds per copy. 0: the rate of memory.
/// Threads  the rank's; copies run on two executors, one per direction, in the order of submission.
/// Errors   InternalError: tensors of different sizes or not contiguous. A completion carries the
///          error of a failed event in `after`.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "strata/base/executor.h"
#include "strata/base/track_trace.h"
#include "strata/device/copy_stream.h"
#include "strata/device/device.h"

namespace strata {

struct LinkOptions {
  double bytes_per_second = 0;  ///< only on a CPU, as the latency
  double latency_seconds = 0;
};

class Link {
 public:
  /// `trace` outlives the link.
  explicit Link(LinkOptions options = {}, TrackTrace* trace = nullptr, Device device = {})
      : Link(options, trace, Stream(device), Stream(device)) {}
  /// Uses existing streams of one device.
  Link(LinkOptions options, TrackTrace* trace, Stream to_device, Stream to_host);

  /// Copies between contiguous tensors of one size and type, after all of `after`. `layer`: for the
  /// trace.
  Completion to_device(at::Tensor device, at::Tensor host, std::vector<Completion> after = {},
                       int layer = -1);
  Completion to_host(at::Tensor host, at::Tensor device, std::vector<Completion> after = {},
                     int layer = -1);

  std::int64_t bytes_to_device() const { return bytes_to_device_; }
  std::int64_t bytes_to_host() const { return bytes_to_host_; }

 private:
  Completion copy(TrackKind kind, at::Tensor to, at::Tensor from, std::vector<Completion> after,
                  int layer);
  Completion copy_on_host(TrackKind kind, at::Tensor to, at::Tensor from,
                          std::vector<Completion> after, int layer);

  LinkOptions options_;
  TrackTrace* trace_;
  std::int64_t bytes_to_device_ = 0;
  std::int64_t bytes_to_host_ = 0;
  std::array<double, 2> free_seconds_{};  // by direction: when the submitted copies end
  // In, out: on the host or on the device.
  std::array<std::unique_ptr<Executor>, 2> executors_;
  std::array<std::unique_ptr<CopyStream>, 2> copy_streams_;
};

}  // namespace strata
