#include "strata/train/saving_agreement.h"

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <stdexcept>
#include <string>

#include "strata/base/errors.h"
#include "strata/comm/ranks.h"

namespace strata {
namespace {

// How many of four ranks get the error of type E that starts with `what`.
template <typename E>
int ranks_that_fail(const std::string& what, const std::function<void(int rank)>& action) {
  std::atomic<int> failed = 0;
  run_thread_ranks({.ranks = 4}, [&](Group& group, MemoryAccount&) {
    attempt(group, [] {});
    try {
      attempt(group, [&] { action(group.rank()); });
    } catch (const E& error) {
      if (error.text().what == what && error.text().fix != "") ++failed;
    }
    attempt(group, [] {});  // the group is usable afterwards
  });
  return failed;
}

TEST(SavingAgreement, EveryRankFailsAsTheLowestThatDid) {
  EXPECT_EQ(
      ranks_that_fail<SystemError>("disk full 2",
                                   [](int rank) {
                                     if (rank < 2) return;
                                     throw SystemError({.operation = "test.write",
                                                        .what = "disk full " + std::to_string(rank),
                                                        .fix = "free space"});
                                   }),
      4);
  EXPECT_EQ(
      ranks_that_fail<UserError>(
          "no folder",
          [](int rank) {
            if (rank != 3) return;
            throw UserError({.operation = "test.write", .what = "no folder", .fix = "name one"});
          }),
      4);
}

TEST(SavingAgreement, TakesOtherExceptionsForBugs) {
  std::atomic<int> failed = 0;
  run_thread_ranks({.ranks = 3}, [&](Group& group, MemoryAccount&) {
    try {
      attempt(group, [&] {
        if (group.rank() == 1) throw std::runtime_error("surprise");
      });
    } catch (const InternalError& error) {
      if (error.text().got == "surprise") ++failed;
    }
  });
  EXPECT_EQ(failed, 3);
}

}  // namespace
}  // namespace strata
