#include "strata/device/link.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "strata/base/errors.h"
#include "strata/base/measurement.h"

namespace strata {

Link::Link(LinkOptions options, TrackTrace* trace, Stream to_device, Stream to_host)
    : options_(options), trace_(trace) {
  const auto make = [&](int i, TrackKind kind, Stream stream) {
    if (stream.queue()) {
      copy_streams_[i] = std::make_unique<CopyStream>(std::move(stream), kind, trace);
    } else {
      executors_[i] =
          std::make_unique<Executor>(ExecutorOptions{.name = i == 0 ? "link in" : "link out"});
    }
  };
  make(0, TrackKind::kToDevice, std::move(to_device));
  make(1, TrackKind::kToHost, std::move(to_host));
}

Completion Link::copy(TrackKind kind, at::Tensor to, at::Tensor from, std::vector<Completion> after,
                      int layer) {
  CopyStream* const copies = copy_streams_[kind == TrackKind::kToDevice ? 0 : 1].get();
  if (copies) return copies->copy(std::move(to), std::move(from), std::move(after), layer);
  return copy_on_host(kind, std::move(to), std::move(from), std::move(after), layer);
}

Completion Link::copy_on_host(TrackKind kind, at::Tensor to, at::Tensor from,
                              std::vector<Completion> after, int layer) {
  STRATA_CHECK_EQ(to.nbytes(), from.nbytes(), "device.link");
  STRATA_CHECK(to.is_contiguous() && from.is_contiguous(), "device.link");
  const bool in = kind == TrackKind::kToDevice;
  const double submitted = now_seconds();
  const bool ready =
      std::ranges::all_of(after, [](const Completion& event) { return event.ready(); });
  return executors_[in ? 0 : 1]->submit(
      [=, this, to = std::move(to), from = std::move(from)] {
        double seconds = options_.latency_seconds;
        if (options_.bytes_per_second > 0)
          seconds += static_cast<double>(from.nbytes()) / options_.bytes_per_second;
        // A bus is not delayed by a thread that wakes up late. A copy that was ready at submission
        // begins then, or at the end of the previous copy. For other copies only the current time
        // is known.
        constexpr double kLateSeconds = 0.5e-3;
        double& free = free_seconds_[in ? 0 : 1];
        const double now = now_seconds();
        double begin = ready ? std::max(free, submitted) : now - free < kLateSeconds ? free : now;
        if (seconds <= 0) begin = now;
        std::memcpy(to.data_ptr(), from.const_data_ptr(), from.nbytes());
        free = std::max(begin + seconds, now_seconds());
        const double left = free - now_seconds();
        if (left > 0) std::this_thread::sleep_for(std::chrono::duration<double>(left));
        if (trace_) trace_->add({kind, layer, begin, free});
      },
      std::move(after));
}

Completion Link::to_device(at::Tensor device, at::Tensor host, std::vector<Completion> after,
                           int layer) {
  bytes_to_device_ += static_cast<std::int64_t>(host.nbytes());
  return copy(TrackKind::kToDevice, std::move(device), std::move(host), std::move(after), layer);
}

Completion Link::to_host(at::Tensor host, at::Tensor device, std::vector<Completion> after,
                         int layer) {
  bytes_to_host_ += static_cast<std::int64_t>(device.nbytes());
  return copy(TrackKind::kToHost, std::move(host), std::move(device), std::move(after), layer);
}

}  // namespace strata
