// On a CPU nothing is ever pending: a stream without a queue costs a comparison with null. One device,
// however many sockets and cores: threads are the business of each rank's pool.
#include "strata/device/device.h"

#include <charconv>
#include <optional>

#include "strata/base/errors.h"

namespace strata {
namespace {

class CpuBackend final : public DeviceBackend {
 public:
  int count() const override { return 1; }
  std::shared_ptr<StreamQueue> make_queue(int) const override { return nullptr; }
};

constexpr const char* kNames[] = {"cpu", "cuda"};

const DeviceBackend& backend_of(DeviceKind kind) {
  return kind == DeviceKind::kCuda ? cuda_backend() : cpu_backend();
}

[[noreturn]] void refuse(const std::string& what, const std::string& expected,
                         const std::string& got) {
  throw UserError({.operation = "device.parse",
                   .what = what,
                   .expected = expected,
                   .got = got,
                   .fix = "name the device cpu"});
}

std::optional<int> index_in(const std::string& digits) {
  int index = 0;
  const char* end = digits.data() + digits.size();
  const auto [stopped, error] = std::from_chars(digits.data(), end, index);
  if (error != std::errc() || stopped != end || index < 0) return std::nullopt;
  return index;
}

}  // namespace

const DeviceBackend& cpu_backend() {
  static const CpuBackend backend;
  return backend;
}

Device Device::parse(const std::string& name) {
  const std::size_t colon = name.find(':');
  const std::string kind = name.substr(0, colon);
  const std::optional<int> index =
      colon == std::string::npos ? std::optional(0) : index_in(name.substr(colon + 1));
  for (const DeviceKind known : {DeviceKind::kCpu, DeviceKind::kCuda}) {
    if (kind != kNames[static_cast<int>(known)]) continue;
    if (!index) break;
    const int count = backend_of(known).count();
    if (*index >= count)
      refuse("this machine has no such device", "an index below " + std::to_string(count), name);
    return {known, *index};
  }
  refuse("not the name of a device", "cpu, cuda or cuda:INDEX", name);
}

std::string Device::name() const {
  const std::string text = kNames[static_cast<int>(kind)];
  return kind == DeviceKind::kCpu ? text : text + ":" + std::to_string(index);
}

c10::TensorOptions Device::options(c10::ScalarType dtype) const {
  if (kind == DeviceKind::kCpu) return host_options(dtype);
  return c10::TensorOptions().dtype(dtype).device(c10::DeviceType::CUDA,
                                                  static_cast<c10::DeviceIndex>(index));
}

c10::TensorOptions host_options(c10::ScalarType dtype) {
  return c10::TensorOptions().dtype(dtype).device(c10::DeviceType::CPU);
}

bool Event::query() const { return !pending_ || pending_->query(); }

void Event::synchronize() const {
  if (pending_) pending_->synchronize();
}

Stream::Stream(Device device)
    : device_(device), queue_(backend_of(device.kind).make_queue(device.index)) {}

Event Stream::record() const { return queue_ ? queue_->record() : Event(); }

// The caller does what follows, so it is he who waits.
void Stream::wait(const Event& event) const { queue_ ? queue_->wait(event) : event.synchronize(); }

void Stream::synchronize() const {
  if (queue_) queue_->synchronize();
}

}  // namespace strata
