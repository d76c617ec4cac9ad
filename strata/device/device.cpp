// On a CPU no work is ever pending: a stream without a queue costs a comparison with null. All
// sockets and cores are one device: each rank's pool divides its threads.
#include "strata/device/device.h"

#include <charconv>
#include <optional>
#include <thread>

#include "strata/base/enum_names.h"
#include "strata/base/error_source.h"
#include "strata/base/errors.h"
#include "strata/base/measurement.h"
#include "strata/base/options.h"
#include "strata/device/host_memory.h"

namespace strata {
namespace {

class CpuBackend final : public DeviceBackend {
 public:
  int count() const override { return 1; }
  std::string why_none() const override { return ""; }
  DeviceFacts facts(int) const override {
    return {.name = "CPU",
            .bytes = host_memory().bytes,
            .multiprocessors = static_cast<int>(std::thread::hardware_concurrency())};
  }
  std::int64_t free_bytes(int) const override { return host_memory().free_bytes; }
  std::shared_ptr<StreamQueue> make_queue(int) const override { return nullptr; }
  std::shared_ptr<StreamQueue> compute_queue(int) const override { return nullptr; }
  std::unique_ptr<DeviceBinding> bind(int) const override { return nullptr; }
  void register_host_memory(void*, std::size_t) const override {}
  void unregister_host_memory(void*) const override {}
};

// The work ends when it is submitted, so the event has happened; it may know its time.
class TimedCpuEvent final : public DeviceEvent {
 public:
  bool ready() const override { return true; }
  void wait() const override {}
  double seconds_since(const DeviceEvent& earlier) const override {
    const auto* other = dynamic_cast<const TimedCpuEvent*>(&earlier);
    STRATA_CHECK(other, "device.seconds_between");
    return seconds_ - other->seconds_;
  }

 private:
  double seconds_ = now_seconds();
};

constexpr EnumNames<DeviceKind> kKindNames{{DeviceKind::kCpu, "cpu"}, {DeviceKind::kCuda, "cuda"}};

// `auto` chooses the first kind that exists: the faster kind comes first.
constexpr DeviceKind kPreferred[] = {DeviceKind::kCuda, DeviceKind::kCpu};

constexpr ErrorSource kParseErrors{"device.parse", "set mesh.device=cpu"};

std::optional<int> index_in(const std::string& digits) {
  int index = 0;
  const char* end = digits.data() + digits.size();
  const auto [stopped, error] = std::from_chars(digits.data(), end, index);
  if (error != std::errc() || stopped != end || index < 0) return std::nullopt;
  return index;
}

}  // namespace

const DeviceBackend& backend_of(DeviceKind kind) {
  return kind == DeviceKind::kCuda ? cuda_backend() : cpu_backend();
}

const DeviceBackend& cpu_backend() {
  static const CpuBackend backend;
  return backend;
}

void DeviceBackend::require(int index) const {
  if (index < count()) return;
  throw kParseErrors.user("", "this machine has no such device",
                          "an index below " + std::to_string(count()), std::to_string(index));
}

const char* name_of(DeviceChoice choice) {
  using enum DeviceChoice;
  static constexpr EnumNames<DeviceChoice> kNames{{kAuto, "auto"}, {kCpu, "cpu"}, {kCuda, "cuda"}};
  return kNames[choice];
}

void describe(OptionSet& set, const std::string& prefix, DeviceChoice& choice) {
  set.add(prefix + ".device", &choice, all_named<DeviceChoice>(),
          {.help = "What ranks compute on; auto: cuda, or else cpu. One that this build or machine "
                   "lacks is refused, but by plan --estimate: what it says of bytes and cuts holds "
                   "there, its seconds are a CPU's"});
}

Device Device::parse(const std::string& name) {
  if (name == name_of(DeviceChoice::kAuto))
    for (const DeviceKind kind : kPreferred)
      if (backend_of(kind).count() > 0) return {kind, 0};
  const std::size_t colon = name.find(':');
  const std::string kind = name.substr(0, colon);
  const std::optional<int> index =
      colon == std::string::npos ? std::optional(0) : index_in(name.substr(colon + 1));
  for (const DeviceKind known : {DeviceKind::kCpu, DeviceKind::kCuda}) {
    if (kind != kKindNames[known]) continue;
    if (!index) break;
    backend_of(known).require(*index);
    return {known, *index};
  }
  throw kParseErrors.user("", "not the name of a device", "auto, cpu, cuda or cuda:INDEX", name);
}

std::string Device::name() const {
  const std::string text = kKindNames[kind];
  return kind == DeviceKind::kCpu ? text : text + ":" + std::to_string(index);
}

c10::TensorOptions Device::options(c10::ScalarType dtype) const {
  if (kind == DeviceKind::kCpu) return host_options(dtype);
  return c10::TensorOptions().dtype(dtype).device(c10::DeviceType::CUDA,
                                                  static_cast<c10::DeviceIndex>(index));
}

Device device_of_rank(DeviceKind kind, int rank_on_machine) {
  const DeviceBackend& backend = backend_of(kind);
  backend.require(0);
  return {kind, rank_on_machine % backend.count()};
}

c10::TensorOptions host_options(c10::ScalarType dtype) {
  return c10::TensorOptions().dtype(dtype).device(c10::DeviceType::CPU);
}

double DeviceEvent::seconds_since(const DeviceEvent&) const {
  throw InternalError(
      {.operation = "device.seconds_between", .what = "an event was recorded without its time"});
}

const DeviceEvent* on_device(const Completion& completion) {
  const auto* event = dynamic_cast<const DeviceEvent*>(completion.source());
  return event ? event->on_device() : nullptr;
}

double seconds_between(const Completion& begin, const Completion& end) {
  const auto* earlier = dynamic_cast<const DeviceEvent*>(begin.source());
  const auto* later = dynamic_cast<const DeviceEvent*>(end.source());
  STRATA_CHECK(earlier && later, "device.seconds_between");
  begin.wait();
  end.wait();
  return later->seconds_since(*earlier);
}

Stream::Stream(Device device)
    : device_(device), queue_(backend_of(device.kind).make_queue(device.index)) {}

Stream Stream::compute(Device device) {
  return {device, backend_of(device.kind).compute_queue(device.index)};
}

Completion Stream::record(EventTime time) const {
  if (queue_) return queue_->record(time);
  return time == EventTime::kKnown ? Completion(std::make_shared<TimedCpuEvent>()) : Completion();
}

// The calling thread performs the following work, so it waits.
void Stream::wait(const Completion& event) const { queue_ ? queue_->wait(event) : event.wait(); }

void Stream::synchronize() const {
  if (queue_) queue_->synchronize();
}

DeviceScope::DeviceScope(Device device) : binding_(backend_of(device.kind).bind(device.index)) {}

}  // namespace strata
