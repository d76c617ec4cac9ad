/// Holds what must be so whether ranks are threads or processes, for the tests of both.
#pragma once

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "strata/comm/group.h"
#include "strata/device/account.h"

namespace strata {

/// Values whose sum depends on the order of addition.
inline at::Tensor example_values(int rank, std::int64_t numel) {
  const at::Tensor index = at::arange(numel, at::kFloat);
  return (index * 0.37f + static_cast<float>(rank) * 1.61f).sin() * (rank % 2 ? 1e4f : 1.0f);
}

/// Their sum in rank order.
inline at::Tensor ordered_sum(int ranks, std::int64_t numel) {
  at::Tensor sum = example_values(0, numel);
  for (int rank = 1; rank < ranks; ++rank) sum = sum + example_values(rank, numel);
  return sum;
}

/// What rank 0 sends is charged to rank 1, which receives it: at once by whoever receives, by the
/// sender when the thread that wrote the bytes lets go of them.
inline void expect_charge_to_move(Group& group, MemoryAccount& account) {
  at::Tensor tensor;
  if (group.rank() == 0) {
    group.send(1, {}, at::empty({1024}));
  } else {
    tensor = group.receive(0, {});
  }
  group.barrier();
  const std::int64_t expected = group.rank() == 0 ? 0 : 4096;
  for (int i = 0; i < 15000 && account.current_bytes() != expected; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  EXPECT_EQ(account.current_bytes(), expected);
}

}  // namespace strata
