/// Records what ranks have sent and still hold, as far as they know. A peer may be slower than the
/// simulated one, so a value has certainly been received when a message arrives that the peer sent
/// after receiving it, or when all ranks have met at the norm.
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
  /// `meet`: all ranks meet at the norm; false: no rank waits for confirmation.
  SentValues(int ranks, bool meet) : held_(ranks), has_met_(ranks), meet_(meet) {}

  /// For values sent at the end of the previous step, with no message back yet.
  void hold_from_before(int sender, int receiver, const SentValue& sent) {
    held_[sender].push_back({receiver, -1, sent});
  }

  void next_action() { ++now_; }
  void send(const MessageKey& message) {
    if (meet_) sent_[message] = now_;
  }

  /// Calls gone(sent) for the received message and for each earlier one that its receipt confirms.
  template <typename F>
  void receive(const MessageKey& message, int receiver, int sender, F gone) {
    if (!meet_) return;
    const auto sent = sent_.find(message);
    let_go(receiver, sent->second, gone, [&](const Held& held) { return held.peer == sender; });
    sent_.erase(sent);
  }

  /// No rank leaves the norm before all have received their messages.
  template <typename F>
  void meet(int rank, F gone) {
    let_go(rank, now_, gone, [](const Held&) { return true; });
    has_met_[rank] = true;
  }

  /// Whether the sender keeps holding a value that the receiver now holds.
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
  std::vector<bool> has_met_;                // per rank: it has passed the norm
  std::map<MessageKey, std::int64_t> sent_;  // not received yet: the time of sending
  bool meet_;
  std::int64_t now_ = 0;
};

}  // namespace strata
