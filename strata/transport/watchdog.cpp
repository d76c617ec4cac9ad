// Invariants:
//   1. Only the thread that is bound to a rank changes the rank's progress; waits of other threads
//   on its mailbox (a save in the background) do not count.
//   2. A rank blocks others only if it neither waits nor has reported new progress for the whole
//   time. The chain of waits is followed to such a rank, or to a cycle (a deadlock); the shortest
//   time without progress along it counts.
//   3. Time in which this process itself was stopped (a debugger, a suspended machine) counts for
//   no rank.
#include "strata/transport/watchdog.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <utility>

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

void ProgressTable::report_progress(int rank, const char* what, int position, int micro_batch) {
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
  if (progress.device.seconds > 0) progress.device.seconds += progress.silent_seconds;
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

namespace {

constexpr double kSilence = 5;  // seconds; processes report their ranks every second

bool silent(const RankProgress& progress) {
  return !progress.ended && progress.silent_seconds > kSilence;
}

// "forward of micro-batch 4"; for a rank or its device
template <typename Work>
std::string subject(const Work& work) {
  std::string text = work.what;
  if (work.micro_batch >= 0) text += " of micro-batch " + std::to_string(work.micro_batch);
  return text;
}

std::string in_seconds(double value) { return std::to_string(std::lround(value)) + " s"; }

// " waits for its device for 61 s, at position 17 in backward of micro-batch 1"
std::string wait_for_device(const DeviceWork& work) {
  std::string text = " waits for its device";
  if (work.collective) text += ", which waits in a collective,";
  text += " for " + in_seconds(work.seconds);
  if (!*work.what) return text;
  text += work.position >= 0 ? ", at position " + std::to_string(work.position) + " in " : ", in ";
  return text + subject(work);
}

// For a rank that waits for no other: how long it, or its device, has made no progress.
double stands_still(const RankProgress& progress) {
  if (progress.ended) return 0;
  if (progress.device.seconds > 0) return progress.device.seconds;
  return progress.waits_for >= 0 ? 0 : progress.unchanged_seconds;
}

std::string wait_of(const RankProgress& progress, const std::string& from) {
  std::string text = " waits";
  if (progress.position >= 0) text += " at position " + std::to_string(progress.position);
  if (!*progress.what) return text + " for " + from;
  return progress.collective ? text + " in " + subject(progress) + " for " + from
                             : text + " for the " + subject(progress) + " from " + from;
}

std::string state_of(const RankProgress& progress) {
  if (progress.ended) return ", which has ended";
  if (silent(progress))
    return ", not heard from for " + in_seconds(progress.silent_seconds) +
           (*progress.what ? ", last seen in " + subject(progress) : "");
  if (progress.waits_for >= 0) return ", which waits in turn: a deadlock";
  return (*progress.what ? ", last seen in " + subject(progress) : std::string(", which is busy")) +
         " for " + in_seconds(progress.unchanged_seconds);
}

// Among ranks without progress for `seconds`, one of them because of its device: the rank that
// blocks the others.
int blocking_rank(const std::vector<RankProgress>& ranks, double seconds) {
  const auto blocks = [&](const RankProgress& progress) {
    const double still = stands_still(progress);
    const bool waits = progress.device.seconds > 0 && progress.device.collective;
    return still < seconds ? std::pair(0, still) : std::pair(waits ? 1 : 2, still);
  };
  return static_cast<int>(std::ranges::max_element(ranks, {}, blocks) - ranks.begin());
}

}  // namespace

std::optional<Stall> diagnose(const std::vector<RankProgress>& ranks, int waiter, double seconds,
                              const std::function<std::string(int rank)>& name_of) {
  std::vector<int> chain{waiter};
  double unchanged = ranks[waiter].unchanged_seconds;
  std::string text = name_of(waiter);
  while (true) {
    const RankProgress& last = ranks[chain.back()];
    if (last.device.seconds >= seconds && !last.ended) {
      const int blocking = blocking_rank(ranks, seconds);
      text += (chain.size() > 1 ? ", which" : "") + wait_for_device(last.device);
      if (blocking != chain.back())
        text += "; " + name_of(blocking) +
                (ranks[blocking].device.seconds > 0 ? wait_for_device(ranks[blocking].device)
                                                    : state_of(ranks[blocking]).substr(1));
      return Stall{
          blocking, ranks[blocking].device.seconds > 0,
          std::min(chain.size() > 1 ? unchanged : last.device.seconds, last.device.seconds), text};
    }
    if (last.waits_for < 0 || (chain.size() > 1 && silent(last))) break;
    const int next = last.waits_for;
    text += (chain.size() > 1 ? ", which" : "") + wait_of(last, name_of(next));
    unchanged = std::min(unchanged, ranks[next].ended ? unchanged : ranks[next].unchanged_seconds);
    const bool seen = std::find(chain.begin(), chain.end(), next) != chain.end();
    chain.push_back(next);
    if (seen) break;
  }
  if (chain.size() == 1 || unchanged < seconds) return std::nullopt;
  return Stall{chain.back(), /*on_device=*/false, unchanged, text + state_of(ranks[chain.back()])};
}

Watchdog::Watchdog(ProgressTable& table, Options options)
    : table_(table), options_(std::move(options)), thread_([this] { watch(); }) {}

Watchdog::~Watchdog() {
  ended_.change([](bool& ended) { ended = true; });
  thread_.join();
}

void Watchdog::watch() {
  const double pause = options_.stall_seconds > 0 ? std::min(1.0, options_.stall_seconds / 4) : 1.0;
  while (true) {
    if (ended_.wait_for(std::chrono::duration<double>(pause), [](bool ended) { return ended; }))
      return;
    // Compares with the previous check, because the process may have been stopped anywhere in
    // between.
    const auto now = std::chrono::steady_clock::now();
    const double passed = std::chrono::duration<double>(now - looked_).count();
    if (passed > options_.stopped_seconds) table_.clear(passed);
    looked_ = now;
    tell();
    if (!options_.failed()) look();
  }
}

void Watchdog::tell() {
  if (!options_.tell_others) return;
  std::vector<RankProgress> ranks;
  for (int i = 0; i < options_.local_ranks; ++i) ranks.push_back(of(options_.first_rank + i));
  options_.tell_others(ranks);
}

RankProgress Watchdog::of(int rank) const {
  RankProgress progress = table_.of(rank);
  const bool local =
      rank >= options_.first_rank && rank < options_.first_rank + options_.local_ranks;
  if (local && !progress.ended && options_.look_at_device) options_.look_at_device(rank, progress);
  return progress;
}

void Watchdog::look() {
  if (options_.stall_seconds <= 0) return;
  std::vector<RankProgress> ranks;
  for (int rank = 0; rank < table_.size(); ++rank) ranks.push_back(of(rank));
  // The process was stopped in between: the collected progress counts that time, and the next round
  // clears it.
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - looked_;
  if (took.count() > options_.stopped_seconds) return;
  for (int i = 0; i < options_.local_ranks; ++i) {
    const int rank = options_.first_rank + i;
    const auto stall = diagnose(ranks, rank, options_.stall_seconds, options_.name_of);
    if (stall) report(*stall);
  }
}

void Watchdog::report(const Stall& stall) {
  const auto [known, fresh] = warned_.try_emplace(stall.blocking_rank, stall.seconds);
  if (fresh || stall.seconds < known->second)
    options_.warn(stall.text);  // a different stall than before
  known->second = stall.seconds;
  if (options_.fatal_seconds <= 0 || stall.seconds < options_.fatal_seconds) return;
  options_.fail(SystemError(
      {.operation = "comm.wait",
       .where = "",
       .what = stall.text,
       .expected = "progress within " + std::to_string(std::lround(options_.fatal_seconds)) + " s",
       .fix = "look at what " + options_.name_of(stall.blocking_rank) + " does (" +
              (stall.on_device ? "errors of its GPU in dmesg: Xid" : "a slow disk, a debugger") +
              ", a layer that takes longer: mesh.stall_fatal_seconds), then resume from the last "
              "checkpoint with --resume"}));
}

}  // namespace strata
