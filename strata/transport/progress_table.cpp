#include "strata/transport/progress_table.h"

#include <cstring>

namespace strata {

ProgressTable::ProgressTable(int ranks) {
  for (int rank = 0; rank < ranks; ++rank) entries_.push_back(std::make_unique<Entry>());
}

template <typename Change>
void ProgressTable::change(int rank, const Change& change) {
  Entry& entry = *entries_[rank];
  const std::lock_guard lock(entry.mutex);
  if (entry.thread != std::this_thread::get_id()) return;
  change(entry.progress);
  entry.changed = Clock::now();
}

void ProgressTable::bind(int rank) {
  Entry& entry = *entries_[rank];
  const std::lock_guard lock(entry.mutex);
  entry.thread = std::this_thread::get_id();
  entry.local = true;
  entry.progress = {};
  entry.changed = Clock::now();
}

void ProgressTable::doing(int rank, const char* what, int position, int micro_batch) {
  change(rank, [&](RankProgress& progress) {
    std::strncpy(progress.what, what, sizeof progress.what - 1);
    progress.position = position;
    progress.micro_batch = micro_batch;
  });
}

void ProgressTable::begin_wait(int rank, int from, bool collective) {
  change(rank, [&](RankProgress& progress) {
    progress.waits_for = from;
    progress.collective = collective;
  });
}

void ProgressTable::end_wait(int rank) {
  change(rank, [](RankProgress& progress) { progress.waits_for = -1; });
}

void ProgressTable::end(int rank) {
  change(rank, [](RankProgress& progress) {
    progress.waits_for = -1;
    progress.ended = true;
  });
}

void ProgressTable::update(int first, std::span<const RankProgress> ranks) {
  const Clock::time_point now = Clock::now();
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    Entry& entry = *entries_.at(static_cast<std::size_t>(first) + i);
    const std::lock_guard lock(entry.mutex);
    entry.progress = ranks[i];
    entry.heard = now;
    entry.changed = now - std::chrono::duration_cast<Clock::duration>(
                              std::chrono::duration<double>(ranks[i].unchanged_seconds));
  }
}

RankProgress ProgressTable::of(int rank) const {
  const Entry& entry = *entries_[rank];
  const std::lock_guard lock(entry.mutex);
  const auto since = [](Clock::time_point begin) {
    return std::chrono::duration<double>(Clock::now() - begin).count();
  };
  RankProgress progress = entry.progress;
  progress.unchanged_seconds = since(entry.changed);
  progress.silent_seconds = entry.local ? 0 : since(entry.heard);
  return progress;
}

void ProgressTable::clear(double seconds) {
  const auto span =
      std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  for (const std::unique_ptr<Entry>& entry : entries_) {
    const std::lock_guard lock(entry->mutex);
    entry->changed += span;
    entry->heard += span;
  }
}

}  // namespace strata
