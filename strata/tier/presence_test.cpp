#include "strata/tier/presence.h"

#include <gtest/gtest.h>

#include <stdexcept>

#include "strata/base/errors.h"

namespace strata {
namespace {

using State = Presence::State;

class Ready final : public Transfer {
 public:
  Completion finish() override { return {}; }
};

const auto kNoWait = [](const Completion&) {};

// A presence in this state, without pins.
Presence in(State state) {
  Presence presence;
  if (state == State::kAway) return presence;
  presence.arrive(std::make_unique<Ready>());
  if (state == State::kArriving) return presence;
  presence.finish(kNoWait);
  if (state == State::kLeaving) presence.leave(std::make_unique<Ready>());
  return presence;
}

// The state after `change`, or the former one if the change is refused.
State after(State state, void (*change)(Presence&)) {
  Presence presence = in(state);
  EXPECT_EQ(presence.state(), state);
  try {
    change(presence);
  } catch (const InternalError& error) {
    EXPECT_EQ(error.text().operation, "tier.presence");
    EXPECT_EQ(presence.state(), state);
  }
  return presence.state();
}

TEST(Presence, AllowsTheTransitionsOfItsDiagramAlone) {
  using enum State;
  struct Case {
    const char* name;
    void (*change)(Presence&);
    State next[4];  // by state: away, arriving, here, leaving
  };
  const Case cases[] = {
      {"arrive",
       [](Presence& p) { p.arrive(std::make_unique<Ready>()); },
       {kArriving, kArriving, kHere, kLeaving}},
      {"arrive at once",
       [](Presence& p) { p.arrive(nullptr); },
       {kHere, kArriving, kHere, kLeaving}},
      {"leave",
       [](Presence& p) { p.leave(std::make_unique<Ready>()); },
       {kAway, kArriving, kLeaving, kLeaving}},
      {"leave at once", [](Presence& p) { p.leave(nullptr); }, {kAway, kArriving, kAway, kLeaving}},
      {"finish", [](Presence& p) { p.finish(kNoWait); }, {kAway, kHere, kHere, kAway}},
      {"outdate", [](Presence& p) { p.outdate(); }, {kAway, kArriving, kAway, kLeaving}},
  };
  for (const Case& c : cases)
    for (const State state : {kAway, kArriving, kHere, kLeaving})
      EXPECT_EQ(after(state, c.change), c.next[static_cast<int>(state)])
          << c.name << " from " << name_of(state);
}

TEST(Presence, RefusesPinsOfBytesThatAreNotHere) {
  for (const State state : {State::kAway, State::kArriving, State::kLeaving}) {
    Presence presence = in(state);
    EXPECT_THROW(presence.pin(), InternalError) << name_of(state);
    EXPECT_THROW(presence.unpin(), InternalError) << name_of(state);
  }
}

TEST(Presence, KeepsPinnedBytesHere) {
  Presence presence = in(State::kHere);
  presence.pin();
  presence.pin();
  presence.unpin();
  EXPECT_THROW(presence.leave(nullptr), InternalError);
  EXPECT_THROW(presence.outdate(), InternalError);
  presence.unpin();
  EXPECT_THROW(presence.unpin(), InternalError);
  presence.leave(nullptr);
  EXPECT_EQ(presence.state(), State::kAway);
}

TEST(Presence, IsAwayAfterATransferThatFails) {
  for (const State state : {State::kArriving, State::kLeaving}) {
    Presence presence = in(state);
    EXPECT_THROW(presence.finish([](const Completion&) { throw std::runtime_error("no disk"); }),
                 std::runtime_error);
    EXPECT_EQ(presence.state(), State::kAway) << name_of(state);
    presence.arrive(nullptr);
  }
}

}  // namespace
}  // namespace strata
