#include "strata/schedule/action.h"

#include <gtest/gtest.h>

#include <set>

#include "strata/base/errors.h"

namespace strata {
namespace {

TEST(Action, ToStringFitsOneShortLine) {
  EXPECT_EQ(to_string({.op = Op::kForward, .stage = 2, .micro_batch = 4, .layers = {6, 9}}),
            "F s2 m4 [6,9)");
  EXPECT_EQ(to_string({.op = Op::kBackward, .stage = 2, .micro_batch = 4}), "B s2 m4");
  EXPECT_EQ(to_string({.op = Op::kSendActivation, .micro_batch = 4, .value = 7, .peer = 3}),
            "SF v7 m4 to rank 3");
  EXPECT_EQ(
      to_string(
          {.op = Op::kReceiveGradient, .micro_batch = 4, .value = 7, .consumer = 8, .peer = 3}),
      "RB v7<-8 m4 from rank 3");
  EXPECT_EQ(to_string({.op = Op::kSendTiedWeight, .value = 0, .consumer = 8, .peer = 1}),
            "SW t0->8 to rank 1");
  EXPECT_EQ(to_string({.op = Op::kUpdate}), "U");
}

TEST(Action, KindsHaveUniqueShortNames) {
  std::set<std::string> names;
  for (int op = 0; op < kNumOps; ++op) names.insert(kind_of(static_cast<Op>(op)));
  EXPECT_EQ(names.size(), static_cast<std::size_t>(kNumOps));
  EXPECT_FALSE(names.count("?"));
}

TEST(Action, SendsPairWithReceivesAndClassesAreDisjoint) {
  for (int i = 0; i < kNumOps; ++i) {
    const Op op = static_cast<Op>(i);
    EXPECT_LE(is_compute(op) + is_send(op) + is_receive(op), 1) << kind_of(op);
    if (is_send(op)) {
      EXPECT_TRUE(is_receive(receive_of(op))) << kind_of(op);
    }
  }
  EXPECT_EQ(receive_of(Op::kSendActivation), Op::kReceiveActivation);
  EXPECT_EQ(receive_of(Op::kSendTiedWeight), Op::kReceiveTiedWeight);
  EXPECT_THROW(receive_of(Op::kForward), InternalError);
}

}  // namespace
}  // namespace strata
