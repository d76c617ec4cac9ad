#include "strata/comm/stall.h"

#include <algorithm>
#include <cmath>

namespace strata {
namespace {

constexpr double kSilence = 5;  // seconds: heartbeats come every second

bool silent(const Activity& activity) {
  return !activity.ended && activity.unheard_seconds > kSilence;
}

// "forward of micro-batch 4"
std::string subject(const Activity& activity) {
  std::string text = activity.what;
  if (activity.micro_batch >= 0) text += " of micro-batch " + std::to_string(activity.micro_batch);
  return text;
}

std::string wait_of(const Activity& activity, const std::string& from) {
  std::string text = " waits";
  if (activity.position >= 0) text += " at position " + std::to_string(activity.position);
  if (!*activity.what) return text + " for " + from;
  return activity.collective ? text + " in " + subject(activity) + " for " + from
                             : text + " for the " + subject(activity) + " from " + from;
}

std::string state_of(const Activity& activity) {
  const auto seconds = [](double value) { return std::to_string(std::lround(value)) + " s"; };
  if (activity.ended) return ", which has ended";
  if (silent(activity))
    return ", not heard from for " + seconds(activity.unheard_seconds) +
           (*activity.what ? ", last seen in " + subject(activity) : "");
  if (activity.waits_for >= 0) return ", which waits in turn: a deadlock";
  return (*activity.what ? ", last seen in " + subject(activity) : std::string(", which is busy")) +
         " for " + seconds(activity.unchanged_seconds);
}

}  // namespace

std::optional<Stall> diagnose(const std::vector<Activity>& activities, int waiter, double seconds,
                              const std::function<std::string(int rank)>& name_of) {
  std::vector<int> chain{waiter};
  double unchanged = activities[waiter].unchanged_seconds;
  std::string text = name_of(waiter);
  while (true) {
    const Activity& last = activities[chain.back()];
    if (last.waits_for < 0 || (chain.size() > 1 && silent(last))) break;
    const int next = last.waits_for;
    text += (chain.size() > 1 ? ", which" : "") + wait_of(last, name_of(next));
    unchanged = std::min(unchanged,
                         activities[next].ended ? unchanged : activities[next].unchanged_seconds);
    const bool seen = std::find(chain.begin(), chain.end(), next) != chain.end();
    chain.push_back(next);
    if (seen) break;
  }
  if (chain.size() == 1 || unchanged < seconds) return std::nullopt;
  return Stall{chain.back(), unchanged, text + state_of(activities[chain.back()])};
}

}  // namespace strata
