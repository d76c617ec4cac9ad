/// Defines devices, which hold a rank's tensors, and streams, which order the work on them.
///
/// Every tensor factory gets options(dtype) of the rank's device (Group::device()), options of
/// another tensor, or host_options(dtype): bytes that the processor itself reads or writes on any
/// device, such as those of files and of messages between processes.
///
/// A stream performs its work in the order of submission. A recorded completion marks a position in
/// it: it is ready when everything submitted before has ended. On a CPU the calling thread does the
/// work at once: a stream holds nothing, and recorded completions are ready.
///
/// Each kind of device is a source file that implements DeviceBackend; for a kind that a build
/// lacks, another source file refuses (device_no_cuda.cpp).
///
/// A thread that computes is bound to its device (DeviceScope): its operations then use the
/// device's compute stream. Ranks of a process that share a device share that stream: a device
/// computes one thing at a time anyway, and tensors move between ranks without events.
///
/// Threads  values; any thread may wait for a completion. Several threads may submit work to a
///          stream; they must agree on the order.
/// Errors   UserError: an unknown device name, or a device that this build or machine doesn't have.
#pragma once

#include <c10/core/ScalarType.h>
#include <c10/core/TensorOptions.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "strata/base/completion.h"

namespace strata {

class OptionSet;

enum class DeviceKind : std::uint8_t { kCpu, kCuda };

/// The user's choice: names that Device::parse() accepts.
enum class DeviceChoice : std::uint8_t { kAuto, kCpu, kCuda };
const char* name_of(DeviceChoice choice);  ///< "auto", "cpu", "cuda"

/// Adds the field `prefix`.device.
void describe(OptionSet& set, const std::string& prefix, DeviceChoice& choice);

struct Device {
  DeviceKind kind = DeviceKind::kCpu;
  int index = 0;

  /// Parses "cpu", "cuda" (the first GPU), "cuda:1", or "auto" (cuda, or else cpu). Throws
  /// UserError unless the device exists.
  static Device parse(const std::string& name);
  std::string name() const;

  /// Options for factories of dense tensors on this device.
  c10::TensorOptions options(c10::ScalarType dtype) const;

  friend bool operator==(const Device&, const Device&) = default;
};

/// Returns the device of the n-th rank of this machine: ranks take devices in turn, and share them
/// if there are more ranks than devices.
Device device_of_rank(DeviceKind kind, int rank_on_machine);

/// Options for factories of tensors that stay on the host.
c10::TensorOptions host_options(c10::ScalarType dtype);

/// The end of work on a device. Its completion cannot call back: a thread or a stream waits for it.
class DeviceEvent : public Completion::Source {
 public:
  /// Both events were recorded with their time by this kind of device, and have happened.
  virtual double seconds_since(const DeviceEvent& earlier) const;
  /// Returns the event that a queue can wait for, or null if the host does the work. Waits until
  /// the device has received the work.
  virtual const DeviceEvent* on_device() const { return nullptr; }
};

/// Returns the event that a queue can wait for, or null if the work has ended or a thread must wait
/// for the host.
const DeviceEvent* on_device(const Completion& completion);

/// Whether an event records its time, which costs a little more.
enum class EventTime : std::uint8_t { kUnknown, kKnown };

/// Returns the seconds on the device's clock between two events; waits for both. They must be
/// recorded with EventTime::kKnown.
double seconds_between(const Completion& begin, const Completion& end);

/// The work queue of a device.
class StreamQueue {
 public:
  virtual ~StreamQueue() = default;
  virtual Completion record(EventTime time) = 0;
  virtual void wait(const Completion& event) = 0;
  virtual void synchronize() = 0;
  /// Copies contiguous memory of the host or the device.
  virtual void copy(void* to, const void* from, std::size_t bytes) = 0;
  /// Whether submitted work is recorded instead of performed: then waiting is not allowed.
  virtual bool recording() const { return false; }
  virtual void* native() = 0;  ///< the cudaStream_t
};

/// An ordered sequence of work on a device. Copies are the same stream.
class Stream {
 public:
  explicit Stream(Device device = {});   ///< creates a new stream
  static Stream compute(Device device);  ///< shared by all ranks on the device
  /// Wraps an existing queue.
  Stream(Device device, std::shared_ptr<StreamQueue> queue)
      : device_(device), queue_(std::move(queue)) {}

  Device device() const { return device_; }
  StreamQueue* queue() const { return queue_.get(); }  ///< null: the calling thread does the work
  /// Marks the position after all work submitted so far.
  Completion record(EventTime time = EventTime::kUnknown) const;
  void wait(const Completion& event) const;  ///< later work starts after `event`
  void synchronize() const;                  ///< blocks the calling thread until all work has ended
  /// The argument for kernel launches: a cudaStream_t; null on a CPU.
  void* native() const { return queue_ ? queue_->native() : nullptr; }

 private:
  Device device_;
  std::shared_ptr<StreamQueue> queue_;  // null: the calling thread does the work
};

/// The binding of a thread to a device; the destructor undoes it.
class DeviceBinding {
 public:
  virtual ~DeviceBinding() = default;
};

/// Binds the calling thread to a device and its compute stream.
class DeviceScope {
 public:
  explicit DeviceScope(Device device);

 private:
  std::unique_ptr<DeviceBinding> binding_;  // null: nothing to bind
};

struct DeviceFacts {
  std::string name;  ///< model name: "NVIDIA H100 80GB HBM3"
  std::int64_t bytes = 0;
  int multiprocessors = 0;  ///< for a CPU: hardware threads
  std::string capability;   ///< "9.0"; for a CPU: empty
  std::vector<int> peers;   ///< devices of this kind whose memory it can read directly
};

/// Implements one kind of device.
class DeviceBackend {
 public:
  virtual ~DeviceBackend() = default;
  /// Devices of this machine; 0 also if the build has no backend.
  virtual int count() const = 0;
  /// The reason why there are none; empty if there are some.
  virtual std::string why_none() const = 0;
  /// Throws UserError unless the device exists.
  virtual void require(int index) const;
  virtual DeviceFacts facts(int index) const = 0;
  /// Bytes of the device that are free now.
  virtual std::int64_t free_bytes(int index) const = 0;
  virtual std::string nccl_version() const { return "none"; }  ///< of libtorch's NCCL
  /// Null: the caller does the work.
  virtual std::shared_ptr<StreamQueue> make_queue(int index) const = 0;
  virtual std::shared_ptr<StreamQueue> compute_queue(int index) const = 0;
  virtual std::unique_ptr<DeviceBinding> bind(int index) const = 0;
  /// Lets kernels and copies of `index` read memory of `peer`; returns false if this machine can't.
  virtual bool enable_peer_access(int index, int peer) const { return index == peer; }
  /// Registers whole pages of host memory, so that devices copy them at full speed, in parallel
  /// with other work.
  virtual void register_host_memory(void* begin, std::size_t bytes) const = 0;
  virtual void unregister_host_memory(void* begin) const = 0;
};

const DeviceBackend& backend_of(DeviceKind kind);
const DeviceBackend& cpu_backend();
const DeviceBackend& cuda_backend();

}  // namespace strata
