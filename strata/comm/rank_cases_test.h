/// Cases that must hold for ranks that are threads or processes, for the tests of both.
#pragma once

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>
#include <vector>

#include "strata/comm/group.h"
#include "strata/comm/ranks.h"
#include "strata/device/account.h"
#include "strata/transport/faulty_transport.h"

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

/// A message from rank 0 is charged to rank 1: a receiver is charged at once, a sender until the
/// thread that wrote the bytes frees them.
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

/// Runs ranks of two processes, which are threads here.
inline void run_on_two_processes(FaultyNetwork& network, int ranks, const RankFunction& function) {
  std::vector<std::jthread> processes;
  for (int process = 0; process < 2; ++process)
    processes.emplace_back([&, process] {
      run_ranks({.ranks = ranks,
                 .rendezvous = Rendezvous{.process = process, .processes = 2},
                 .connect = [&](const Rendezvous& at) { return network.transport(at.process); }},
                function);
    });
}

}  // namespace strata
