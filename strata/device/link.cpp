#include "strata/device/link.h"

#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "strata/base/errors.h"

namespace strata {

Event Link::copy(Lane& lane, at::Tensor to, at::Tensor from, std::vector<Event> after) {
  STRATA_CHECK_EQ(to.nbytes(), from.nbytes(), "device.link");
  STRATA_CHECK(to.is_contiguous() && from.is_contiguous(), "device.link");
  return lane.submit(
      [options = options_, to = std::move(to), from = std::move(from)] {
        using Seconds = std::chrono::duration<double>;
        const auto begin = std::chrono::steady_clock::now();
        std::memcpy(to.data_ptr(), from.const_data_ptr(), from.nbytes());
        double seconds = options.latency_seconds;
        if (options.bytes_per_second > 0)
          seconds += static_cast<double>(from.nbytes()) / options.bytes_per_second;
        if (seconds > 0)
          std::this_thread::sleep_until(
              begin + std::chrono::duration_cast<std::chrono::nanoseconds>(Seconds(seconds)));
      },
      std::move(after));
}

Event Link::to_device(at::Tensor device, at::Tensor host, std::vector<Event> after) {
  bytes_to_device_ += static_cast<std::int64_t>(host.nbytes());
  return copy(to_device_, std::move(device), std::move(host), std::move(after));
}

Event Link::to_host(at::Tensor host, at::Tensor device, std::vector<Event> after) {
  bytes_to_host_ += static_cast<std::int64_t>(device.nbytes());
  return copy(to_host_, std::move(host), std::move(device), std::move(after));
}

}  // namespace strata
