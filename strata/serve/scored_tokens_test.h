/// Compares scored tokens bit by bit.
#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "strata/batching/token_service.h"

namespace strata {

inline void expect_equal(const std::vector<ScoredToken>& got,
                         const std::vector<ScoredToken>& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    EXPECT_EQ(got[i].token, expected[i].token) << i;
    EXPECT_EQ(got[i].log_probability, expected[i].log_probability) << i;
    EXPECT_EQ(got[i].likeliest, expected[i].likeliest) << i;
  }
}

}  // namespace strata
