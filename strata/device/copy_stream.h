/// Copies between a device that has a queue and host memory, in one direction, on a stream of its own,
/// alongside compute.
///
///     CopyStream in(Stream(device), LaneKind::kToDevice);
///     const Completion there = in.copy(device_bytes, host_bytes, {written});   // returns at once
///     Stream::compute(device).wait(there);                                // as does this
///
/// Copies are done in the order of submission. One whose `after` are the device's events, or have happened, is
/// given to the stream at once, so that a recording sees it. One that comes after work of the host is given by
/// an executor that waits for that work; what is submitted later keeps its place in the order.
///
/// Host bytes are held until they are copied. Device bytes are not: who gives them back makes the compute
/// stream wait for the event first, because memory is given out again in that stream's order.
///
/// Threads  one submits.
/// Units    seconds of now_seconds(), for the trace; the device's clock is compared with it when the stream is idle.
/// Errors   what an event in front of a copy threw, its own event throws to everyone who waits for it; copy()
///          throws it if that has happened already.
#pragma once

#include <ATen/core/Tensor.h>

#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "strata/base/executor.h"
#include "strata/base/lane_trace.h"
#include "strata/device/device.h"

namespace strata {

class CopyStream {
 public:
  /// `trace` (null: none) outlives the copies. What is given at once while `compute` is recorded is recorded with it.
  CopyStream(Stream stream, LaneKind kind, LaneTrace* trace, Stream compute);
  explicit CopyStream(const Stream& stream, LaneKind kind, LaneTrace* trace = nullptr)
      : CopyStream(stream, kind, trace, Stream::compute(stream.device())) {}
  ~CopyStream();  ///< when everything submitted is done
  CopyStream(const CopyStream&) = delete;
  CopyStream& operator=(const CopyStream&) = delete;

  /// Contiguous tensors of one size. `layer`: for the trace.
  Completion copy(at::Tensor to, at::Tensor from, std::vector<Completion> after = {},
                  int layer = -1);

 private:
  struct Running {
    Completion begin, end;
    at::Tensor host;
    int layer;
  };

  Completion give(const at::Tensor& to, const at::Tensor& from,
                  const std::vector<Completion>& after, int layer, bool recorded);
  void settle();  // what has ended

  Stream stream_, compute_;
  LaneKind kind_;
  LaneTrace* trace_;
  std::mutex mutex_;
  std::deque<Running> running_;
  Completion compared_;  // happened at compared_seconds_
  double compared_seconds_ = -1e9;
  Completion given_;                    // by the executor: the last copy
  std::unique_ptr<Executor> executor_;  // where it was needed
};

}  // namespace strata
