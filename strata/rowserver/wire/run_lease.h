/// Decides whether a server's rows belong to a run that continues, and to which process.
///
/// A run owns the rows while a stream of one of its ranks has delivered a message recently, and a
/// little longer: a rank reconnects after its stream breaks, and all ranks reconnect after a
/// restart of the server. Ranks that have sent a bye do not reconnect, nor do ranks of a process
/// that has ended on this machine.
///
/// Threads  one at a time.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "strata/base/process_identity.h"

namespace strata {

struct LeaseTimes {
  std::chrono::milliseconds returning{3'000};  ///< that a rank without a stream may be away
  std::chrono::milliseconds silence{15'000};   ///< of a stream, before it counts for nothing
};

class RunLease {
 public:
  /// `returns`: the server was restarted in the folder of a run, whose ranks may reconnect.
  RunLease(int ranks, LeaseTimes times, bool returns);

  /// A run begins; the previous run no longer owns the rows.
  void begin(const ProcessIdentity& holder);

  void join(int rank, const ProcessIdentity& holder);  ///< a rank has a stream
  void listen(int rank);                               ///< the server waits for its next message
  void hear(int rank);                                 ///< it has come
  void lose(int rank);                                 ///< the stream is broken
  void leave(int rank);                                ///< the rank has said goodbye

  bool is_held() const;
  std::int64_t contacts() const { return contacts_; }  ///< how often a rank was heard
  /// Throws a UserError that names the process that owns the rows.
  [[noreturn]] void refuse() const;

 private:
  using Clock = std::chrono::steady_clock;
  struct Rank {
    bool here = false, awaited = false;
    Clock::time_point awaited_since = {};
    Clock::time_point returns_until = {};
  };
  Rank& at(int rank) { return ranks_[static_cast<std::size_t>(rank)]; }

  const LeaseTimes times_;
  std::vector<Rank> ranks_;
  ProcessIdentity holder_;
  std::int64_t since_ = 0;  // seconds since 1970
  std::int64_t contacts_ = 0;
};

}  // namespace strata
