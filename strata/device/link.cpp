#include "strata/device/link.h"

#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "strata/base/errors.h"
#include "strata/base/measurement.h"

namespace strata {

Event Link::copy(LaneKind kind, at::Tensor to, at::Tensor from, std::vector<Event> after,
                 int layer) {
  STRATA_CHECK_EQ(to.nbytes(), from.nbytes(), "device.link");
  STRATA_CHECK(to.is_contiguous() && from.is_contiguous(), "device.link");
  Lane& lane = kind == LaneKind::kToDevice ? to_device_ : to_host_;
  return lane.submit(
      [=, options = options_, trace = trace_, to = std::move(to), from = std::move(from)] {
        const double begin = now_seconds();
        std::memcpy(to.data_ptr(), from.const_data_ptr(), from.nbytes());
        double seconds = options.latency_seconds;
        if (options.bytes_per_second > 0)
          seconds += static_cast<double>(from.nbytes()) / options.bytes_per_second;
        const double left = begin + seconds - now_seconds();
        if (left > 0) std::this_thread::sleep_for(std::chrono::duration<double>(left));
        if (trace) trace->add({kind, layer, begin, now_seconds()});
      },
      std::move(after));
}

Event Link::to_device(at::Tensor device, at::Tensor host, std::vector<Event> after, int layer) {
  bytes_to_device_ += static_cast<std::int64_t>(host.nbytes());
  return copy(LaneKind::kToDevice, std::move(device), std::move(host), std::move(after), layer);
}

Event Link::to_host(at::Tensor host, at::Tensor device, std::vector<Event> after, int layer) {
  bytes_to_host_ += static_cast<std::int64_t>(device.nbytes());
  return copy(LaneKind::kToHost, std::move(host), std::move(device), std::move(after), layer);
}

}  // namespace strata
