/// Says where a rank's tensors live and in which order work on them is done: devices, streams, events.
///
/// Every tensor factory takes options(dtype) of the rank's device (Group::device()), options of a
/// tensor beside it, or host_options(dtype): bytes that the processor itself reads or writes whatever
/// the device is, as those of files and of messages between processes.
///
/// What is given to a stream is done in that order. An event marks a place in it: it has happened
/// when everything in front of it is done. On a CPU the caller does the work himself before he goes
/// on: a stream holds nothing, and an event has happened when it is recorded.
///
/// A kind of device is one source file that implements DeviceBackend; one that a build lacks is a
/// source file that refuses (device_no_cuda.cpp).
///
/// Threads  values; any thread may ask for an event or wait for it, a stream has one user at a time.
/// Errors   UserError: a name that is no device, or a device that this build or machine doesn't have.
#pragma once

#include <c10/core/ScalarType.h>
#include <c10/core/TensorOptions.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

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

/// For factories of what stays on the host.
c10::TensorOptions host_options(c10::ScalarType dtype);

/// What a kind of device knows about an event that has not happened when it is recorded.
class PendingEvent {
 public:
  virtual ~PendingEvent() = default;
  virtual bool query() const = 0;
  virtual void synchronize() const = 0;
};

/// A copy marks the same place.
class Event {
 public:
  Event() = default;  ///< has happened
  explicit Event(std::shared_ptr<const PendingEvent> pending) : pending_(std::move(pending)) {}

  bool query() const;        ///< whether it has happened; never waits
  void synchronize() const;  ///< the calling thread waits for it

 private:
  std::shared_ptr<const PendingEvent> pending_;  // null: has happened
};

/// The queue of a device that has one.
class StreamQueue {
 public:
  virtual ~StreamQueue() = default;
  virtual Event record() = 0;
  virtual void wait(const Event& event) = 0;
  virtual void synchronize() = 0;
};

/// A copy is the same stream.
class Stream {
 public:
  explicit Stream(Device device = {});
  /// On a queue that is there already.
  Stream(Device device, std::shared_ptr<StreamQueue> queue)
      : device_(device), queue_(std::move(queue)) {}

  Device device() const { return device_; }
  StreamQueue* queue() const { return queue_.get(); }  ///< null: the caller does the work
  Event record() const;                 ///< marks the place behind all that was given so far
  void wait(const Event& event) const;  ///< what is given from now on is done behind the event
  void synchronize() const;             ///< the calling thread waits until all is done

 private:
  Device device_;
  std::shared_ptr<StreamQueue> queue_;  // null: the caller does the work
};

/// What one kind of device provides.
class DeviceBackend {
 public:
  virtual ~DeviceBackend() = default;
  /// Devices of this machine; none, too, where the build has no backend.
  virtual int count() const = 0;
  /// Throws a UserError unless there is such a device.
  virtual void require(int index) const;
  /// Null: its work is done by the caller.
  virtual std::shared_ptr<StreamQueue> make_queue(int index) const = 0;
};

const DeviceBackend& cpu_backend();
const DeviceBackend& cuda_backend();

}  // namespace strata
