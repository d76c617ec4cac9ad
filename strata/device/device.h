/// Says where a rank's tensors live and in which order work on them is done: devices and streams.
///
/// Every tensor factory takes options(dtype) of the rank's device (Group::device()), options of a
/// tensor beside it, or host_options(dtype): bytes that the processor itself reads or writes whatever
/// the device is, as those of files and of messages between processes.
///
/// A stream does its work in the order of submission. A recorded completion marks a place in it: it is
/// ready when everything submitted before it is done. On a CPU the calling thread does the work at
/// once: a stream holds nothing, and what it records is ready.
///
/// A kind of device is one source file that implements DeviceBackend; one that a build lacks is a
/// source file that refuses (device_no_cuda.cpp).
///
/// A thread that computes is bound to its device (DeviceScope): what it calls then works on the device's
/// compute stream. Ranks of a process that share a device share that stream: a device computes one thing
/// at a time anyway, and what one rank hands to another needs no event.
///
/// Threads  values; any thread may wait for a completion. Work may be given to a stream by
///          several threads; what of it comes first is theirs to agree on.
/// Errors   UserError: a name that is no device, or a device that this build or machine doesn't have.
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

/// What a user asks for: names that Device::parse() takes.
enum class DeviceChoice : std::uint8_t { kAuto, kCpu, kCuda };
const char* name_of(DeviceChoice choice);  ///< "auto", "cpu", "cuda"

/// The field `prefix`.device.
void describe(OptionSet& set, const std::string& prefix, DeviceChoice& choice);

struct Device {
  DeviceKind kind = DeviceKind::kCpu;
  int index = 0;

  /// "cpu", "cuda" (the first one), "cuda:1", or "auto" (cuda, or else cpu); it is there.
  static Device parse(const std::string& name);
  std::string name() const;

  /// For factories: dense tensors on this device.
  c10::TensorOptions options(c10::ScalarType dtype) const;

  friend bool operator==(const Device&, const Device&) = default;
};

/// What the n-th rank of this machine computes on: ranks go round the devices, and share one where there are
/// more ranks than devices.
Device device_of_rank(DeviceKind kind, int rank_on_machine);

/// For factories of what stays on the host.
c10::TensorOptions host_options(c10::ScalarType dtype);

/// The end of work on a device, as that kind of device knows it. A completion of one cannot call back: a
/// thread or a stream waits for it.
class DeviceEvent : public Completion::Source {
 public:
  /// Both were recorded with their time by this kind of device, and have happened.
  virtual double seconds_since(const DeviceEvent& earlier) const;
  /// What a queue can wait for; null: the host does the work. Work that the device has yet to get is waited
  /// for until it has.
  virtual const DeviceEvent* on_device() const { return nullptr; }
};

/// What a queue can wait for; null: the work has ended, or the host does it and a thread has to wait.
const DeviceEvent* on_device(const Completion& completion);

/// Whether an event knows when it happened; costs a little more.
enum class EventTime : std::uint8_t { kUnknown, kKnown };

/// The device's clock from one event to a later one; waits for both. Recorded with EventTime::kKnown.
double seconds_between(const Completion& begin, const Completion& end);

/// The queue of a device that has one.
class StreamQueue {
 public:
  virtual ~StreamQueue() = default;
  virtual Completion record(EventTime time) = 0;
  virtual void wait(const Completion& event) = 0;
  virtual void synchronize() = 0;
  /// Memory of either side, contiguous.
  virtual void copy(void* to, const void* from, std::size_t bytes) = 0;
  /// Whether what is given is recorded and not done: nothing may be waited for then.
  virtual bool recording() const { return false; }
  virtual void* native() = 0;  ///< the cudaStream_t
};

/// A copy is the same stream.
class Stream {
 public:
  explicit Stream(Device device = {});   ///< a new one
  static Stream compute(Device device);  ///< the one that all ranks on the device share
  /// On a queue that is there already.
  Stream(Device device, std::shared_ptr<StreamQueue> queue)
      : device_(device), queue_(std::move(queue)) {}

  Device device() const { return device_; }
  StreamQueue* queue() const { return queue_.get(); }  ///< null: the caller does the work
  /// Marks the place after all that was submitted so far.
  Completion record(EventTime time = EventTime::kUnknown) const;
  void wait(const Completion& event) const;  ///< what is submitted from now on starts after it
  void synchronize() const;                  ///< the calling thread waits until all is done
  /// What launches take: a cudaStream_t; null on a CPU.
  void* native() const { return queue_ ? queue_->native() : nullptr; }

 private:
  Device device_;
  std::shared_ptr<StreamQueue> queue_;  // null: the caller does the work
};

/// What a thread is bound to, undone by its end.
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
  std::string name;  ///< of the model: "NVIDIA H100 80GB HBM3"
  std::int64_t bytes = 0;
  int multiprocessors = 0;  ///< a CPU's: hardware threads
  std::string capability;   ///< "9.0"; a CPU's: empty
  std::vector<int> peers;   ///< devices of this kind whose memory it reads over their link
};

/// What one kind of device provides.
class DeviceBackend {
 public:
  virtual ~DeviceBackend() = default;
  /// Devices of this machine; none, too, where the build has no backend.
  virtual int count() const = 0;
  /// Why there is none; empty if there is one.
  virtual std::string why_none() const = 0;
  /// Throws a UserError unless there is such a device.
  virtual void require(int index) const;
  virtual DeviceFacts facts(int index) const = 0;
  /// Of its bytes, what nobody has taken now.
  virtual std::int64_t free_bytes(int index) const = 0;
  virtual std::string nccl_version() const { return "none"; }  ///< of libtorch's
  /// Null: its work is done by the caller.
  virtual std::shared_ptr<StreamQueue> make_queue(int index) const = 0;
  virtual std::shared_ptr<StreamQueue> compute_queue(int index) const = 0;
  virtual std::unique_ptr<DeviceBinding> bind(int index) const = 0;
  /// Lets kernels and copies of `index` read what lies on `peer`; false: this machine can't.
  virtual bool enable_peer_access(int index, int peer) const { return index == peer; }
  /// Whole pages of host memory that devices then copy from and to at full speed, beside other work.
  virtual void register_host_memory(void* begin, std::size_t bytes) const = 0;
  virtual void unregister_host_memory(void* begin) const = 0;
};

const DeviceBackend& backend_of(DeviceKind kind);
const DeviceBackend& cpu_backend();
const DeviceBackend& cuda_backend();

}  // namespace strata
