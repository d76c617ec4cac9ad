#include "strata/rowserver/shard/run_number.h"

#include <gtest/gtest.h>

#include "strata/base/errors.h"

namespace strata {
namespace {

TEST(RunNumber, AscendsAndKeepsName) {
  // time in nanoseconds, as older versions numbered runs
  constexpr std::uint64_t kClock = 1'795'467'000'000'000'000;
  for (const std::uint64_t before : {std::uint64_t{0}, std::uint64_t{7}, kClock})
    for (const RunName name : {RunName{1}, ~RunName{0}}) {
      std::uint64_t newest = before;
      for (int i = 0; i < 3; ++i) {
        const std::uint64_t next = next_run_number(newest, name);
        EXPECT_GT(next, newest);
        EXPECT_EQ(name_of_run(next), name);
        newest = next;
      }
    }
  EXPECT_NE(draw_run_name(), draw_run_name());
}

TEST(RunNumber, RefusesFolderWithoutNextNumber) {
  EXPECT_NO_THROW(next_run_number((std::uint64_t{0xFFFFFFFE} << 32) + 5, 1));
  EXPECT_THROW(next_run_number(std::uint64_t{0xFFFFFFFF} << 32, 1), UserError);
  EXPECT_THROW(next_run_number(~std::uint64_t{0}, 1), UserError);
}

}  // namespace
}  // namespace strata
