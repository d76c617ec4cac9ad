#include "strata/train/run_report.h"

#include <gtest/gtest.h>

#include "strata/report/idle.h"
#include "strata/schedule/action.h"

namespace strata {
namespace {

// The report sees no schedule/: its table of kinds is held to all operations here.
TEST(RunReport, HasWordsForEveryOperation) {
  for (int op = 0; op < kNumOps; ++op) {
    const char* kind = kind_of(static_cast<Op>(op));
    EXPECT_STRNE(look_of(kind).words, look_of("no such kind").words) << kind;
    const bool compute = is_compute(static_cast<Op>(op));
    EXPECT_EQ(use_of_kind(kind) == TimeUse::kCompute, compute) << kind;
  }
}

}  // namespace
}  // namespace strata
