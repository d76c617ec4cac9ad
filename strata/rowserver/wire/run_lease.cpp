#include "strata/rowserver/wire/run_lease.h"

#include <algorithm>
#include <ctime>

#include "strata/base/errors.h"

namespace strata {

RunLease::RunLease(int ranks, LeaseTimes times, bool returns)
    : times_(times), ranks_(static_cast<std::size_t>(ranks)) {
  if (!returns) return;
  for (Rank& rank : ranks_) rank.returns_until = Clock::now() + times_.returning;
}

void RunLease::begin(const ProcessIdentity& holder) {
  ranks_.assign(ranks_.size(), Rank{});
  holder_ = holder;
  since_ = std::time(nullptr);
}

void RunLease::join(int rank, const ProcessIdentity& holder) {
  if (since_ == 0) holder_ = holder, since_ = std::time(nullptr);
  at(rank) = {.here = true};
  ++contacts_;
}

void RunLease::listen(int rank) {
  at(rank).awaited = true;
  at(rank).awaited_since = Clock::now();
}

void RunLease::hear(int rank) {
  at(rank).awaited = false;
  ++contacts_;
}

void RunLease::lose(int rank) { at(rank) = {.returns_until = Clock::now() + times_.returning}; }

void RunLease::leave(int rank) { at(rank) = {}; }

bool RunLease::is_held() const {
  const Clock::time_point now = Clock::now();
  const auto heard = [&](const Rank& rank) {
    return rank.here && !(rank.awaited && now - rank.awaited_since > times_.silence);
  };
  if (std::ranges::any_of(ranks_, heard)) return true;
  const auto returns = [&](const Rank& rank) { return !rank.here && now < rank.returns_until; };
  return std::ranges::any_of(ranks_, returns) && !has_ended(holder_);
}

void RunLease::refuse() const {
  const std::string holder = since_ == 0
                                 ? "a run whose ranks may come back after a restart of the server"
                                 : text_of(holder_) + "; the rows since " + utc_text(since_);
  throw UserError({.operation = "embed.lease",
                   .what = "another run uses these rows and has not ended",
                   .expected = "servers whose last run has ended",
                   .got = holder,
                   .fix = "end that run, or wait until it has ended"});
}

}  // namespace strata
