/// Copies between a device that has a queue and host memory, one direction, beside compute: a stream of its own.
///
///     CopyLane in(Stream(device), LaneKind::kToDevice);
///     const Event there = in.copy(device_bytes, host_bytes, {written});   // returns at once
///     Stream::compute(device).wait(there);                                // as does this
///
/// Copies are done in the order of submission. One whose `after` are the device's events, or have happened, is
/// given to the stream at once, so that a recording sees it. One that comes after work of the host is given by
/// a thread that waits for it; what is submitted behind keeps its place in the order.
///
/// Host bytes are held until they are copied. Device bytes are not: who gives them back makes the compute
/// stream wait for the event first, because memory is given out again in that stream's order.
///
/// Threads  one submits.
/// Units    seconds of now_seconds(), for the trace; the device's clock is compared with it when the lane is idle.
/// Errors   what an event in front of a copy threw, its own event throws to everyone who waits for it; copy()
///          throws it if that has happened already.
#pragma once

#include <ATen/core/Tensor.h>

#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "strata/base/lane_trace.h"
#include "strata/device/device.h"
#include "strata/device/lane.h"

namespace strata {

class CopyLane {
 public:
  /// `trace` (null: none) outlives the lane. What is given at once while `compute` is recorded is recorded with it.
  CopyLane(Stream stream, LaneKind kind, LaneTrace* trace, Stream compute);
  explicit CopyLane(const Stream& stream, LaneKind kind, LaneTrace* trace = nullptr)
      : CopyLane(stream, kind, trace, Stream::compute(stream.device())) {}
  ~CopyLane();  ///< when everything submitted is done
  CopyLane(const CopyLane&) = delete;
  CopyLane& operator=(const CopyLane&) = delete;

  /// Contiguous tensors of one size. `layer`: for the trace.
  Event copy(at::Tensor to, at::Tensor from, std::vector<Event> after = {}, int layer = -1);

 private:
  struct Running {
    Event begin, end;
    at::Tensor host;
    int layer;
  };

  Event give(const at::Tensor& to, const at::Tensor& from, const std::vector<Event>& after,
             int layer, bool recorded);
  void settle();  // what has ended

  Stream stream_, compute_;
  LaneKind kind_;
  LaneTrace* trace_;
  std::mutex mutex_;
  std::deque<Running> running_;
  Event compared_;  // happened at compared_seconds_
  double compared_seconds_ = -1e9;
  Event given_;                   // by the thread: the last one
  std::unique_ptr<Lane> thread_;  // where it was needed
};

}  // namespace strata
