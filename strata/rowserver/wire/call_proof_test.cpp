#include "strata/rowserver/wire/call_proof.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>

#include "strata/base/errors.h"

namespace strata {
namespace {

const std::string kSecret = "a secret of this test";
const std::string kAddress = "ipv4:127.0.0.1:7001";

class CallGateTest : public testing::Test {
 protected:
  CallGateTest() { gate.listen_at({kAddress, "ipv6:[::1]:7001"}); }
  std::string challenge_for(const CallProof& proof) {
    return gate.challenge(proof.question(), "connection 1");
  }
  CallGate gate{kSecret};
  const CallProof caller{"the server", kSecret};
};

TEST_F(CallGateTest, LetsInOneCallPerChallengeWithTheSecret) {
  const std::string proof = caller.answer_to(challenge_for(caller), kAddress);
  EXPECT_NO_THROW(gate.let_in(proof, "connection 1"));
  EXPECT_THROW(gate.let_in(proof, "connection 1"), SystemError) << "a replay";
  EXPECT_NO_THROW(gate.let_in(caller.answer_to(challenge_for(caller), kAddress), "connection 1"));
}

TEST_F(CallGateTest, RefusesAnotherSecretOnEitherSideWithoutShowingIt) {
  const CallProof stranger("the server", "a secret of another user");
  try {
    stranger.answer_to(challenge_for(stranger), kAddress);
    ADD_FAILURE() << "the server has proven nothing";
  } catch (const UserError& error) {
    EXPECT_EQ(std::string(error.what()).find("a secret of"), std::string::npos) << error.what();
  }
  // One who goes on all the same.
  CallGate other("a secret of another user");
  other.listen_at({kAddress});
  const std::string own =
      stranger.answer_to(other.challenge(stranger.question(), "connection 1"), kAddress);
  const std::string real = challenge_for(stranger);
  const auto field = [](const std::string& text, int which) {
    std::istringstream from(text);
    std::string word;
    for (int i = 0; i <= which; ++i) from >> word;
    return word;
  };
  const std::string forged = field(real, 0) + " " + field(real, 1) + " " + field(real, 2) + " " +
                             field(own, 3) + " " + field(own, 4);
  try {
    gate.let_in(forged, "connection 1");
    ADD_FAILURE() << "a proof of another secret was accepted";
  } catch (const UserError& error) {
    EXPECT_EQ(std::string(error.what()).find("a secret of"), std::string::npos) << error.what();
  }
  for (const std::string& none : {std::string(), std::string("1 2 3 4 5"), forged.substr(0, 90)})
    EXPECT_THROW(gate.let_in(none, "connection 1"), UserError) << none;
  EXPECT_THROW(gate.challenge("no nonce", "connection 1"), UserError);
}

TEST_F(CallGateTest, RefusesChallengeOnAnotherConnectionOrAfterItExpires) {
  const std::string proof = caller.answer_to(challenge_for(caller), kAddress);
  EXPECT_THROW(gate.let_in(proof, "connection 2"), SystemError);
  EXPECT_NO_THROW(gate.let_in(proof, "connection 1"));
  CallGate restarted(kSecret);
  restarted.listen_at({kAddress, "ipv6:[::1]:7001"});
  const std::string again = caller.answer_to(challenge_for(caller), kAddress);
  EXPECT_THROW(restarted.let_in(again, "connection 1"), SystemError);
  CallGate hasty(kSecret, std::chrono::milliseconds(0));
  EXPECT_THROW(hasty.challenge(caller.question(), "connection 1"), SystemError) << "it starts";
  hasty.listen_at({kAddress});
  const std::string late =
      caller.answer_to(hasty.challenge(caller.question(), "connection 1"), kAddress);
  std::this_thread::sleep_for(std::chrono::milliseconds(3));
  EXPECT_THROW(hasty.let_in(late, "connection 1"), SystemError);
}

TEST_F(CallGateTest, GivesNoProofToForwardingProgram) {
  try {
    caller.answer_to(challenge_for(caller), "ipv4:127.0.0.1:7666");
    ADD_FAILURE() << "the proof went to another program";
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("7666"), std::string::npos) << error.what();
  }
  // Nor does one that puts its own address in.
  std::string changed = challenge_for(caller);
  changed.replace(changed.rfind("7001"), 4, "7666");
  EXPECT_THROW(caller.answer_to(changed, "ipv6:[::1]:7666"), UserError);
  // The server's proof is not the caller's.
  const std::string challenge = challenge_for(caller);
  std::istringstream from(challenge);
  std::string number, time, nonce, proof;
  from >> number >> time >> nonce >> proof;
  EXPECT_THROW(
      gate.let_in(number + " " + time + " " + nonce + " " + caller.question() + " " + proof,
                  "connection 1"),
      UserError);
}

}  // namespace
}  // namespace strata
