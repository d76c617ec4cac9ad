/// Holds what a rank computes on, for all of its groups: its device, the compute stream, its
/// exports, and copies in progress between device and host.
///
/// Threads  the rank's.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "strata/base/errors.h"
#include "strata/base/executor.h"
#include "strata/comm/collective_library.h"
#include "strata/comm/device_marks.h"
#include "strata/comm/exports.h"
#include "strata/comm/stream_ops.h"
#include "strata/device/device.h"
#include "strata/layout/mesh.h"

namespace strata {

class RankDevice {
 public:
  /// `ops` null: the caller does the work (a CPU). `communication`: where communicators work; the
  /// compute stream waits for it when a collective is finished.
  RankDevice(Stream compute, Stream communication, const StreamOps* ops,
             const CollectiveLibrary& library, Reduction reduction);
  /// The default implementation of this build for a device.
  explicit RankDevice(Device device, Reduction reduction = Reduction::kOrdered);

  Device device() const { return stream.device(); }
  bool owns(const at::Tensor& x) const { return ops && x.defined() && ops->owns(x); }

  /// A copy in host memory; waits for it.
  at::Tensor on_host(const at::Tensor& x) const;
  /// A copy on the device of what is in host memory, which is kept until it was read.
  at::Tensor on_device(const at::Tensor& host);
  void copy_to_device(const at::Tensor& to, const at::Tensor& host);

  /// Copies to host memory and, when that is done, hands the copy to `then` on a thread of its own.
  void pass_to_host(const at::Tensor& x, std::function<void(at::Tensor)> then,
                    std::function<void(const Error&)> failed);

  const Stream stream;  ///< ranks of one device share its stream
  const Stream communication;
  const StreamOps* const ops;
  const CollectiveLibrary& library;
  const Reduction reduction;
  Exports exports;
  std::unique_ptr<DeviceMarks> marks;  ///< null: not observed, or the caller computes itself

  /// Waits until all copies were handed over.
  void finish_passing() { departures_.reset(); }

 private:
  void forget_arrived();

  std::vector<std::pair<Completion, at::Tensor>> arriving_;  // host memory that a copy still reads
  std::unique_ptr<Executor> departures_;                     // null: no copy was started yet
};

}  // namespace strata
