#include "strata/transport/watchdog.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

namespace strata {
namespace {

constexpr double kSilence = 5;  // seconds: processes tell of their ranks every second
constexpr double kStopped = 3;  // seconds more than a pause: this process itself was stopped

bool silent(const RankProgress& progress) {
  return !progress.ended && progress.silent_seconds > kSilence;
}

// "forward of micro-batch 4"
std::string subject(const RankProgress& progress) {
  std::string text = progress.what;
  if (progress.micro_batch >= 0) text += " of micro-batch " + std::to_string(progress.micro_batch);
  return text;
}

std::string wait_of(const RankProgress& progress, const std::string& from) {
  std::string text = " waits";
  if (progress.position >= 0) text += " at position " + std::to_string(progress.position);
  if (!*progress.what) return text + " for " + from;
  return progress.collective ? text + " in " + subject(progress) + " for " + from
                             : text + " for the " + subject(progress) + " from " + from;
}

std::string state_of(const RankProgress& progress) {
  const auto seconds = [](double value) { return std::to_string(std::lround(value)) + " s"; };
  if (progress.ended) return ", which has ended";
  if (silent(progress))
    return ", not heard from for " + seconds(progress.silent_seconds) +
           (*progress.what ? ", last seen in " + subject(progress) : "");
  if (progress.waits_for >= 0) return ", which waits in turn: a deadlock";
  return (*progress.what ? ", last seen in " + subject(progress) : std::string(", which is busy")) +
         " for " + seconds(progress.unchanged_seconds);
}

}  // namespace

std::optional<Stall> diagnose(const std::vector<RankProgress>& ranks, int waiter, double seconds,
                              const std::function<std::string(int rank)>& name_of) {
  std::vector<int> chain{waiter};
  double unchanged = ranks[waiter].unchanged_seconds;
  std::string text = name_of(waiter);
  while (true) {
    const RankProgress& last = ranks[chain.back()];
    if (last.waits_for < 0 || (chain.size() > 1 && silent(last))) break;
    const int next = last.waits_for;
    text += (chain.size() > 1 ? ", which" : "") + wait_of(last, name_of(next));
    unchanged = std::min(unchanged, ranks[next].ended ? unchanged : ranks[next].unchanged_seconds);
    const bool seen = std::find(chain.begin(), chain.end(), next) != chain.end();
    chain.push_back(next);
    if (seen) break;
  }
  if (chain.size() == 1 || unchanged < seconds) return std::nullopt;
  return Stall{chain.back(), unchanged, text + state_of(ranks[chain.back()])};
}

Watchdog::Watchdog(ProgressTable& table, Options options)
    : table_(table), options_(std::move(options)), thread_([this] { watch(); }) {}

Watchdog::~Watchdog() {
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  ending_.notify_all();
  thread_.join();
}

void Watchdog::watch() {
  const double pause = options_.stall_seconds > 0 ? std::min(1.0, options_.stall_seconds / 4) : 1.0;
  std::unique_lock lock(mutex_);
  while (true) {
    const auto begin = std::chrono::steady_clock::now();
    if (ending_.wait_for(lock, std::chrono::duration<double>(pause), [&] { return ended_; }))
      return;
    const double passed =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    if (passed > kStopped) table_.clear(passed);
    tell();
    if (!options_.failed()) look();
  }
}

void Watchdog::tell() {
  if (!options_.tell_others) return;
  std::vector<RankProgress> ranks;
  for (int i = 0; i < options_.local_ranks; ++i)
    ranks.push_back(table_.of(options_.first_rank + i));
  options_.tell_others(ranks);
}

void Watchdog::look() {
  if (options_.stall_seconds <= 0) return;
  std::vector<RankProgress> ranks;
  for (int rank = 0; rank < table_.size(); ++rank) ranks.push_back(table_.of(rank));
  for (int i = 0; i < options_.local_ranks; ++i) {
    const int rank = options_.first_rank + i;
    if (ranks[rank].waits_for < 0) continue;
    const auto stall = diagnose(ranks, rank, options_.stall_seconds, options_.name_of);
    if (stall) report(*stall);
  }
}

void Watchdog::report(const Stall& stall) {
  const auto [known, fresh] = warned_.try_emplace(stall.blocking_rank, stall.seconds);
  if (fresh || stall.seconds < known->second)
    options_.warn(stall.text);  // another stall than before
  known->second = stall.seconds;
  if (options_.fatal_seconds <= 0 || stall.seconds < options_.fatal_seconds) return;
  options_.fail(SystemError(
      {.operation = "comm.wait",
       .where = "",
       .what = stall.text,
       .expected = "progress within " + std::to_string(std::lround(options_.fatal_seconds)) + " s",
       .fix = "look at what " + options_.name_of(stall.blocking_rank) +
              " does (a slow disk, a debugger, a layer that takes longer: "
              "mesh.stall_fatal_seconds), then go on from the last checkpoint with --resume"}));
}

}  // namespace strata
