#include "strata/comm/stall_watch.h"

#include <chrono>
#include <cmath>
#include <utility>
#include <vector>

namespace strata {
namespace {

constexpr std::chrono::seconds kBeat{1};
constexpr double kStopped = 3;  // seconds more than a beat: this process was stopped itself

}  // namespace

StallWatch::StallWatch(PostOffice& office, Options options)
    : office_(office), options_(std::move(options)), thread_([this] { watch(); }) {}

StallWatch::~StallWatch() {
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  ending_.notify_all();
  thread_.join();
}

void StallWatch::watch() {
  std::unique_lock lock(mutex_);
  while (true) {
    const auto begin = std::chrono::steady_clock::now();
    if (ending_.wait_for(lock, kBeat, [&] { return ended_; })) return;
    const double beat =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    if (beat > kStopped) office_.board().forgive(beat);
    tell();
    if (!office_.failed()) look();
  }
}

void StallWatch::tell() {
  if (!options_.tell_others) return;
  std::vector<Activity> activities;
  for (int i = 0; i < office_.local_ranks(); ++i)
    activities.push_back(office_.board().of(office_.first_rank() + i));
  options_.tell_others(activities);
}

void StallWatch::look() {
  if (options_.stall_seconds <= 0) return;
  std::vector<Activity> activities;
  for (int rank = 0; rank < office_.world_size(); ++rank)
    activities.push_back(office_.board().of(rank));
  const int first = office_.first_rank(), end = first + office_.local_ranks();
  for (int rank = first; rank < end; ++rank) {
    if (activities[rank].waits_for < 0) continue;
    const auto stall = diagnose(activities, rank, options_.stall_seconds, options_.name_of);
    if (stall) report(rank, *stall);
  }
}

void StallWatch::report(int waiter, const Stall& stall) {
  const auto [known, fresh] = warned_.try_emplace(stall.culprit, stall.seconds);
  if (fresh || stall.seconds < known->second)
    options_.warn(stall.text);  // another stall than before
  known->second = stall.seconds;
  if (options_.fatal_seconds <= 0 || stall.seconds < options_.fatal_seconds) return;
  options_.fail(SystemError(
      {.operation = "comm.wait",
       .where = "",
       .what = stall.text,
       .expected = "progress within " + std::to_string(std::lround(options_.fatal_seconds)) + " s",
       .fix = "look at what " + options_.name_of(stall.culprit) +
              " does (a slow disk, a debugger), "
              "then go on from the last checkpoint with --resume"}));
}

}  // namespace strata
