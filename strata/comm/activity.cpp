#include "strata/comm/activity.h"

#include <cstring>

namespace strata {

ActivityBoard::ActivityBoard(int ranks) {
  for (int rank = 0; rank < ranks; ++rank) entries_.push_back(std::make_unique<Entry>());
}

template <typename Change>
void ActivityBoard::change(int rank, const Change& change) {
  Entry& entry = *entries_[rank];
  const std::lock_guard lock(entry.mutex);
  if (entry.speaker != std::this_thread::get_id()) return;
  change(entry.activity);
  entry.changed = Clock::now();
}

void ActivityBoard::bind(int rank) {
  Entry& entry = *entries_[rank];
  const std::lock_guard lock(entry.mutex);
  entry.speaker = std::this_thread::get_id();
  entry.local = true;
  entry.activity = {};
  entry.changed = Clock::now();
}

void ActivityBoard::doing(int rank, const char* what, int position, int micro_batch) {
  change(rank, [&](Activity& activity) {
    std::strncpy(activity.what, what, sizeof activity.what - 1);
    activity.position = position;
    activity.micro_batch = micro_batch;
  });
}

void ActivityBoard::begin_wait(int rank, int from, bool collective) {
  change(rank, [&](Activity& activity) {
    activity.waits_for = from;
    activity.collective = collective;
  });
}

void ActivityBoard::end_wait(int rank) {
  change(rank, [](Activity& activity) { activity.waits_for = -1; });
}

void ActivityBoard::end(int rank) {
  change(rank, [](Activity& activity) {
    activity.waits_for = -1;
    activity.ended = true;
  });
}

void ActivityBoard::hear(int first, std::span<const Activity> activities) {
  const Clock::time_point now = Clock::now();
  for (std::size_t i = 0; i < activities.size(); ++i) {
    Entry& entry = *entries_.at(static_cast<std::size_t>(first) + i);
    const std::lock_guard lock(entry.mutex);
    entry.activity = activities[i];
    entry.heard = now;
    entry.changed = now - std::chrono::duration_cast<Clock::duration>(
                              std::chrono::duration<double>(activities[i].unchanged_seconds));
  }
}

Activity ActivityBoard::of(int rank) const {
  const Entry& entry = *entries_[rank];
  const std::lock_guard lock(entry.mutex);
  const auto since = [](Clock::time_point begin) {
    return std::chrono::duration<double>(Clock::now() - begin).count();
  };
  Activity activity = entry.activity;
  activity.unchanged_seconds = since(entry.changed);
  activity.unheard_seconds = entry.local ? 0 : since(entry.heard);
  return activity;
}

void ActivityBoard::forgive(double seconds) {
  const auto span =
      std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  for (const std::unique_ptr<Entry>& entry : entries_) {
    const std::lock_guard lock(entry->mutex);
    entry->changed += span;
    entry->heard += span;
  }
}

}  // namespace strata
