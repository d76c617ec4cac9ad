/// Records work that a device is given once, to be given again at once: a CUDA graph. On a CPU the work is
/// kept as it is and done again.
///
/// What a device repeats is its own work alone, on the memory that was recorded: the host's numbers and
/// decisions are those of the recording. Memory that the work took and still holds is the recording's own
/// until it goes.
///
/// Source   CUDA graphs: developer.nvidia.com/blog/cuda-graphs (Gray 2019).
/// Threads  a recording belongs to one thread, whose work alone it records.
/// Errors   UserError from make_recording(): this build has none for the device. What the work throws; on
///          a device also what it may not do while it is recorded: nothing of it has then been done.
#pragma once

#include <functional>
#include <memory>

#include "strata/device/device.h"

namespace strata {

class Recording {
 public:
  virtual ~Recording() = default;

  /// Does `work` and records it; once.
  virtual void record(std::function<void()> work) = 0;
  virtual void replay() = 0;
  /// Whether recording is doing: then an error of the work is its own, and some of it was done.
  virtual bool does_as_it_records() const { return false; }
};

std::unique_ptr<Recording> make_recording(Device device);
std::unique_ptr<Recording> make_cuda_recording();

}  // namespace strata
