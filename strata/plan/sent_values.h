/// Knows what ranks have sent and still hold, as far as they know: a peer may be later than the simulated one, so
/// what it was sent is gone for certain when something comes back that it sent after it had received that, or when
/// all ranks have met at the norm.
///
/// Units  bytes; time is the number of actions so far.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "strata/schedule/messages.h"

namespace strata {

struct SentValue {
  std::int64_t bytes = 0;
  int made = 0;  ///< SegmentPools::made()
};

class SentValues {
 public:
  /// `meet`: all ranks do, at the norm; else nobody waits to know.
  SentValues(int ranks, bool meet) : held_(ranks), has_met_(ranks), meet_(meet) {}

  /// At the end of the step before, with nothing back yet.
  void hold_from_before(int sender, int receiver, const SentValue& sent) {
    held_[sender].push_back({receiver, -1, sent});
  }

  void next_action() { ++now_; }
  void send(const MessageKey& message) {
    if (meet_) sent_[message] = now_;
  }

  /// The receiver of a message has it, and so what was sent to its sender before: `gone(sent)` for each of these.
  template <typename F>
  void receive(const MessageKey& message, int receiver, int sender, F gone) {
    if (!meet_) return;
    const auto sent = sent_.find(message);
    let_go(receiver, sent->second, gone, [&](const Held& held) { return held.peer == sender; });
    sent_.erase(sent);
  }

  /// No rank leaves the norm before all have received what was sent to them.
  template <typename F>
  void meet(int rank, F gone) {
    let_go(rank, now_, gone, [](const Held&) { return true; });
    has_met_[rank] = true;
  }

  /// Whether the sender goes on holding what the receiver has taken over now.
  bool holds_on(int sender, int receiver, const SentValue& sent) {
    if (!meet_ || has_met_[sender]) return false;
    held_[sender].push_back({receiver, now_, sent});
    return true;
  }

 private:
  struct Held {
    int peer = 0;
    std::int64_t received = 0;
    SentValue sent;
  };
  template <typename F, typename Which>
  void let_go(int rank, std::int64_t before, F gone, Which which) {
    std::erase_if(held_[rank], [&](const Held& held) {
      if (!which(held) || held.received >= before) return false;
      gone(held.sent);
      return true;
    });
  }

  std::vector<std::vector<Held>> held_;      // per rank
  std::vector<bool> has_met_;                // per rank: it is behind the norm
  std::map<MessageKey, std::int64_t> sent_;  // not received yet: when
  bool meet_;
  std::int64_t now_ = 0;
};

}  // namespace strata
