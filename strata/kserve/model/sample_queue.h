/// Decides which requests share a forward pass, from their numbers of samples and times of arrival.
///
/// Requests keep their order. A pass takes the first requests whose samples fit it together. It is
/// due when it is full, or when its first request has waited for `delay`.
///
/// Threads  one at a time.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

namespace strata {

struct SampleLimits {
  std::int64_t samples = 1024;         ///< of a pass, and of a request
  std::chrono::microseconds delay{0};  ///< that a request waits for others, at most
  std::size_t requests = 256;          ///< that wait
};

class SampleQueue {
 public:
  using Clock = std::chrono::steady_clock;
  explicit SampleQueue(SampleLimits limits) : limits_(limits) {}

  /// False: too many requests wait. `samples`: from 1 to those of a pass.
  bool add(std::uint64_t id, std::int64_t samples, Clock::time_point now);
  /// False: the request does not wait.
  bool remove(std::uint64_t id);

  /// When the next pass is due, which may be in the past; none: no request waits.
  std::optional<Clock::time_point> due() const;
  /// Removes and returns the requests of the next pass.
  std::vector<std::uint64_t> take();

  std::size_t size() const { return waiting_.size(); }
  const SampleLimits& limits() const { return limits_; }

 private:
  struct Waiting {
    std::uint64_t id;
    std::int64_t samples;
    Clock::time_point arrival;
  };

  const SampleLimits limits_;
  std::deque<Waiting> waiting_;
  std::int64_t samples_ = 0;  // of all that wait
};

}  // namespace strata
