#include "strata/tier/presence.h"

#include <utility>

#include "strata/base/enum_names.h"
#include "strata/base/errors.h"

namespace strata {

const char* name_of(Presence::State state) {
  using enum Presence::State;
  static constexpr EnumNames<Presence::State> kNames{
      {kAway, "away"}, {kArriving, "arriving"}, {kHere, "here"}, {kLeaving, "leaving"}};
  return kNames[state];
}

void Presence::require(bool follows, const char* transition) const {
  if (follows) return;
  throw InternalError({.operation = "tier.presence",
                       .where = transition,
                       .what = "the bytes of a layer are in a state that does not allow this",
                       .expected = "",
                       .got = std::string(name_of(state_)) + ", pins " + std::to_string(pins_),
                       .fix = ""});
}

void Presence::arrive(std::unique_ptr<Transfer> transfer) {
  require(state_ == State::kAway, "arrive");
  transfer_ = std::move(transfer);
  state_ = transfer_ ? State::kArriving : State::kHere;
}

void Presence::leave(std::unique_ptr<Transfer> transfer) {
  require(state_ == State::kHere && pins_ == 0, "leave");
  transfer_ = std::move(transfer);
  state_ = transfer_ ? State::kLeaving : State::kAway;
}

void Presence::outdate() {
  require(!transfer_ && pins_ == 0, "outdate");
  state_ = State::kAway;
}

void Presence::finish(const std::function<void(Completion)>& wait) {
  require(transfer_ != nullptr, "finish");
  const std::unique_ptr<Transfer> transfer = std::move(transfer_);
  const State next = state_ == State::kArriving ? State::kHere : State::kAway;
  state_ = State::kAway;  // if the transfer fails
  wait(transfer->finish());
  state_ = next;
}

void Presence::pin() {
  require(state_ == State::kHere, "pin");
  ++pins_;
}

void Presence::unpin() {
  require(pins_ > 0, "unpin");
  --pins_;
}

}  // namespace strata
