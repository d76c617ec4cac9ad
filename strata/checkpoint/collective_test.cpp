#include "strata/checkpoint/collective.h"

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

#include "strata/base/errors.h"
#include "strata/comm/ranks.h"

namespace strata {
namespace {

// How many of four ranks get the error of type E that starts with `what`.
template <typename E>
int ranks_that_fail(const std::string& what, const std::function<void(int rank)>& action) {
  std::atomic<int> failed = 0;
  run_thread_ranks({.ranks = 4}, [&](Group& group, MemoryAccount&) {
    run_on_all(group, [] {});
    try {
      run_on_all(group, [&] { action(group.rank()); });
    } catch (const E& error) {
      if (error.text().what == what && error.text().fix != "") ++failed;
    }
    run_on_all(group, [] {});  // the group is usable afterwards
  });
  return failed;
}

TEST(Collective, EveryRankFailsAsTheLowestThatDid) {
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

TEST(Collective, TakesOtherExceptionsForBugs) {
  std::atomic<int> failed = 0;
  run_thread_ranks({.ranks = 3}, [&](Group& group, MemoryAccount&) {
    try {
      run_on_all(group, [&] {
        if (group.rank() == 1) throw std::runtime_error("surprise");
      });
    } catch (const InternalError& error) {
      if (error.text().got == "surprise") ++failed;
    }
  });
  EXPECT_EQ(failed, 3);
}

TEST(Collective, TakesExhaustedMemoryForTheSystems) {
  std::atomic<int> failed = 0;
  run_thread_ranks({.ranks = 2}, [&](Group& group, MemoryAccount&) {
    try {
      run_on_all(group, [&] {
        if (group.rank() == 1) throw std::bad_alloc();
      });
    } catch (const SystemError&) {
      ++failed;
    }
  });
  EXPECT_EQ(failed, 2);
}

TEST(Collective, GathersInOrderOfRanks) {
  std::vector<std::string> all;
  run_thread_ranks({.ranks = 3}, [&](Group& group, MemoryAccount&) {
    const std::vector<std::string> gathered =
        gather(group, [&] { return std::string(static_cast<std::size_t>(group.rank()), 'x'); });
    if (group.rank() == 0) all = gathered;
    EXPECT_EQ(gathered.empty(), group.rank() > 0);
  });
  EXPECT_EQ(all, (std::vector<std::string>{"", "x", "xx"}));
}

}  // namespace
}  // namespace strata
