#include "strata/kserve/model/sample_queue.h"

#include <algorithm>

#include "strata/base/errors.h"

namespace strata {

bool SampleQueue::add(std::uint64_t id, std::int64_t samples, Clock::time_point now) {
  STRATA_CHECK(samples > 0 && samples <= limits_.samples, "kserve.sample_queue");
  if (waiting_.size() >= limits_.requests) return false;
  waiting_.push_back({id, samples, now});
  samples_ += samples;
  return true;
}

bool SampleQueue::remove(std::uint64_t id) {
  const auto found = std::ranges::find(waiting_, id, &Waiting::id);
  if (found == waiting_.end()) return false;
  samples_ -= found->samples;
  waiting_.erase(found);
  return true;
}

// With as many samples as fit a pass, or more, no later request can join it.
std::optional<SampleQueue::Clock::time_point> SampleQueue::due() const {
  if (waiting_.empty()) return std::nullopt;
  const Clock::time_point arrival = waiting_.front().arrival;
  return samples_ >= limits_.samples ? arrival : arrival + limits_.delay;
}

std::vector<std::uint64_t> SampleQueue::take() {
  std::vector<std::uint64_t> ids;
  std::int64_t samples = 0;
  while (!waiting_.empty() && samples + waiting_.front().samples <= limits_.samples) {
    samples += waiting_.front().samples;
    ids.push_back(waiting_.front().id);
    waiting_.pop_front();
  }
  samples_ -= samples;
  return ids;
}

}  // namespace strata
