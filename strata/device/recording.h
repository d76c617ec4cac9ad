/// Records a device's work once and replays it as a whole: a CUDA graph. On a CPU the work is kept
/// as a function and called again.
///
/// A replay repeats only the device's work, on the recorded memory: the host's numbers and
/// decisions are those of the recording. Memory that the work allocated and still holds belongs to
/// the recording until it is destroyed.
///
/// Source   CUDA graphs: developer.nvidia.com/blog/cuda-graphs (Gray 2019).
/// Threads  a recording belongs to one thread and records only that thread's work.
/// Errors   UserError from make_recording(): this build has none for the device. record() throws
///          the error of the work; on a device also if the work does something that cannot be
///          recorded: then none of it was performed.
#pragma once

#include <functional>
#include <memory>

#include "strata/device/device.h"

namespace strata {

class Recording {
 public:
  virtual ~Recording() = default;

  /// Performs `work` and records it; call it once.
  virtual void record(std::function<void()> work) = 0;
  virtual void replay() = 0;
  /// Whether record() performs the work while it records: then after an error a part of it was
  /// done.
  virtual bool does_as_it_records() const { return false; }
};

std::unique_ptr<Recording> make_recording(Device device);
std::unique_ptr<Recording> make_cuda_recording();

}  // namespace strata
