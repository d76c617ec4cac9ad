/// Copies between a device with a queue and host memory, in one direction, on its own stream, in
/// parallel with compute.
///
///     CopyStream in(Stream(device), TrackKind::kToDevice);
///     const Completion there = in.copy(device_bytes, host_bytes, {written});   // returns at once
///     Stream::compute(device).wait(there);                                // returns at once, too
///
/// Copies run in the order of submission. If all of `after` are device events or have ended, the
/// copy is submitted to the stream at once, so that a recording contains it. If a copy waits for
/// host work, an executor waits for that work and then submits it; later copies keep their place.
///
/// Host bytes are held until they are copied. Device bytes are not: before freeing them, the caller
/// makes the compute stream wait for the copy, because memory is reused in that stream's order.
///
/// Threads  one submits.
/// Units    seconds of now_seconds(), for the trace; the device's clock is compared with it when
///          the stream is idle.
/// Errors   if an event in `after` fails, the copy's completion throws its error to every waiter;
///          copy() throws it if the event has already failed.
#pragma once

#include <ATen/core/Tensor.h>

#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "strata/base/executor.h"
#include "strata/base/track_trace.h"
#include "strata/device/device.h"

namespace strata {

class CopyStream {
 public:
  /// `trace` (null: none) outlives the copies. While `compute` is recorded, copies that are
  /// submitted at once are recorded with it.
  CopyStream(Stream stream, TrackKind kind, TrackTrace* trace, Stream compute);
  explicit CopyStream(const Stream& stream, TrackKind kind, TrackTrace* trace = nullptr)
      : CopyStream(stream, kind, trace, Stream::compute(stream.device())) {}
  ~CopyStream();  ///< waits until all submitted copies have ended
  CopyStream(const CopyStream&) = delete;
  CopyStream& operator=(const CopyStream&) = delete;

  /// Copies between contiguous tensors of one size. `layer`: for the trace.
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
  void settle();  // drops copies that have ended

  Stream stream_, compute_;
  TrackKind kind_;
  TrackTrace* trace_;
  std::mutex mutex_;
  std::deque<Running> running_;
  Completion compared_;  // recorded at compared_seconds_
  double compared_seconds_ = -1e9;
  Completion enqueued_;                 // by the executor: the last submission
  std::unique_ptr<Executor> executor_;  // null until a copy needs it
};

}  // namespace strata
