#include "strata/device/charge_map.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <thread>
#include <vector>

#include "strata/base/errors.h"
#include "strata/device/account.h"
#include "strata/device/cuda_memory.h"

namespace strata {
namespace {

const void* address(std::uintptr_t block) {
  return reinterpret_cast<const void*>(0x7f0000000000 + 512 * block);
}

MemoryAccount cuda_account(const char* name, std::int64_t budget = 0) {
  return MemoryAccount(name, budget, "memory.device", DeviceKind::kCuda);
}

TEST(ChargeMaps, CreditAllocatingAccountFromAnyThread) {
  ChargeMap map;
  MemoryAccount account = cuda_account("rank 0");
  map.allocated(address(1), 1000, &account);
  map.allocated(address(2), 24, &account);
  map.allocated(address(3), 5000, nullptr);
  EXPECT_EQ(account.current_bytes(), 1024);
  std::thread([&] { map.freed(address(1)); }).join();
  EXPECT_EQ(account.current_bytes(), 24);
  EXPECT_EQ(account.peak_bytes(), 1024);
  map.freed(address(3));
  map.freed(address(2));
  EXPECT_EQ(account.current_bytes(), 0);
  map.freed(address(2));  // already freed: has no account
  EXPECT_EQ(account.current_bytes(), 0);
}

TEST(ChargeMaps, IgnoreBlocksFromBeforeTheTrace) {
  ChargeMap map;
  MemoryAccount account = cuda_account("rank 0");
  map.freed(address(1));
  map.move(address(1), account);
  EXPECT_EQ(account.current_bytes(), 0);
}

TEST(ChargeMaps, MoveAChargeAndItsCredit) {
  ChargeMap map;
  MemoryAccount sender = cuda_account("rank 0"), receiver = cuda_account("rank 1");
  map.allocated(address(1), 1024, &sender);
  map.move(address(1), receiver);
  map.move(address(1), receiver);
  EXPECT_EQ(sender.current_bytes(), 0);
  EXPECT_EQ(receiver.current_bytes(), 1024);
  map.freed(address(1));
  EXPECT_EQ(receiver.current_bytes(), 0);
  map.allocated(address(2), 512, nullptr);
  map.move(address(2), receiver);
  EXPECT_EQ(receiver.current_bytes(), 512);
  map.freed(address(2));
  EXPECT_EQ(receiver.current_bytes(), 0);
}

TEST(ChargeMaps, KeepChargeIfReceiverLacksBudget) {
  ChargeMap map;
  MemoryAccount sender = cuda_account("rank 0"), receiver = cuda_account("rank 1", 1000);
  map.allocated(address(1), 1024, &sender);
  EXPECT_THROW(map.move(address(1), receiver), SystemError);
  EXPECT_EQ(sender.current_bytes(), 1024);
  EXPECT_EQ(receiver.current_bytes(), 0);
  EXPECT_EQ(receiver.peak_bytes(), 0);
}

// A trace reports a block after its allocation, so the block is charged; the rank stops at the end
// of its action, even if the block was freed before.
TEST(ChargeMaps, ChargeBeyondBudgetAndFailLaterCheck) {
  ChargeMap map;
  MemoryAccount account = cuda_account("rank 3", 1000);
  map.allocated(address(1), 1000, &account);
  account.require_within_budget();
  map.allocated(address(2), 1, &account);
  map.freed(address(2));
  EXPECT_EQ(account.current_bytes(), 1000);
  try {
    account.require_within_budget();
    FAIL() << "a broken budget went unnoticed";
  } catch (const SystemError& error) {
    EXPECT_EQ(error.text().where, "rank 3");
    EXPECT_EQ(error.text().expected, "at most 1000 B");
  }
  account.reset_peak();
  account.require_within_budget();
}

TEST(ChargeMaps, ChargeReusedBlockToNewOwner) {
  ChargeMap map;
  MemoryAccount first = cuda_account("rank 0"), second = cuda_account("rank 1");
  map.allocated(address(1), 100, &first);
  map.allocated(address(1), 200, &second);
  EXPECT_EQ(first.current_bytes(), 0);
  EXPECT_EQ(second.current_bytes(), 200);
}

// Compares the map with a reference map under artificial traces of several threads.
TEST(ChargeMaps, StayExactWithConcurrentThreads) {
  ChargeMap map;
  constexpr int kThreads = 4;
  std::vector<std::unique_ptr<MemoryAccount>> accounts;
  for (int i = 0; i < kThreads; ++i)
    accounts.push_back(
        std::make_unique<MemoryAccount>("rank", 0, "memory.device", DeviceKind::kCuda));
  std::vector<std::map<std::uintptr_t, std::pair<int, std::int64_t>>> held(kThreads);
  const auto work = [&](int thread) {
    std::mt19937 random(thread);
    for (int i = 0; i < 20000; ++i) {
      const std::uintptr_t block = (random() % 500) * kThreads + thread;  // its own addresses
      const auto at = held[thread].find(block);
      if (at == held[thread].end()) {
        const std::int64_t bytes = 1 + random() % 4096;
        const int owner = static_cast<int>(random() % kThreads);
        map.allocated(address(block), bytes, accounts[owner].get());
        held[thread][block] = {owner, bytes};
      } else if (random() % 2) {
        at->second.first = static_cast<int>(random() % kThreads);
        map.move(address(block), *accounts[at->second.first]);
      } else {
        map.freed(address(block));
        held[thread].erase(at);
      }
    }
  };
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread) threads.emplace_back(work, thread);
  for (std::thread& thread : threads) thread.join();
  std::vector<std::int64_t> expected(kThreads);
  for (const auto& blocks : held)
    for (const auto& [block, charge] : blocks) expected[charge.first] += charge.second;
  for (int i = 0; i < kThreads; ++i) EXPECT_EQ(accounts[i]->current_bytes(), expected[i]);
}

// The allocator needs room for partly used pages, and never more than the device has.
TEST(Accounts, AllowAllocatorRoomForPartlyUsedPages) {
  constexpr std::int64_t kMiB = 1 << 20, kTotal = 4096 * kMiB;
  EXPECT_EQ(memory_fraction(64 * kMiB, kTotal), 128.0 / 4096);
  EXPECT_EQ(memory_fraction(2048 * kMiB, kTotal), 2112.0 / 4096);  // where both rooms are equal
  EXPECT_EQ(memory_fraction(3200 * kMiB, kTotal), 3300.0 / 4096);
  EXPECT_EQ(memory_fraction(4000 * kMiB, kTotal), 1.0);
}

// Host tensors of a rank on a GPU are not charged to its GPU account.
TEST(Accounts, ChargeOneKindOfDevice) {
  install_accounting_allocator();
  MemoryAccount gpu = cuda_account("rank 0"), host("host");
  const AccountScope on_gpu(gpu);
  EXPECT_EQ(current_memory_account(DeviceKind::kCuda), &gpu);
  EXPECT_EQ(current_memory_account(), nullptr);
  const at::Tensor unowned = at::empty({256}, host_options(at::kFloat));
  EXPECT_EQ(gpu.current_bytes(), 0);
  {
    const AccountScope on_host(host);
    const at::Tensor hosts = at::empty({256}, host_options(at::kFloat));
    EXPECT_EQ(host.current_bytes(), 1024);
    EXPECT_EQ(current_memory_account(DeviceKind::kCuda), &gpu);
    const AccountScope uncharged(nullptr, DeviceKind::kCpu);
    EXPECT_EQ(current_memory_account(), nullptr);
    EXPECT_EQ(current_memory_account(DeviceKind::kCuda), &gpu);
  }
  EXPECT_EQ(current_memory_account(), nullptr);
}

// A process makes a table for all of its ranks on the host first, then on the device.
TEST(Accounts, UnchargedScopeCoversAllKindsOfDevices) {
  install_accounting_allocator();
  ChargeMap map;
  MemoryAccount gpu = cuda_account("rank 0"), host("host");
  const AccountScope on_gpu(gpu), on_host(host);
  // Acts like the trace of a device's allocator.
  const auto allocate = [&](std::uintptr_t block) {
    map.allocated(address(block), 512, current_memory_account(DeviceKind::kCuda));
    return at::empty({256}, host_options(at::kFloat));
  };
  {
    const UnchargedScope uncharged;
    const at::Tensor table = allocate(1);
    EXPECT_EQ(gpu.current_bytes(), 0);
    EXPECT_EQ(host.current_bytes(), 0);
  }
  const at::Tensor own = allocate(2);
  EXPECT_EQ(gpu.current_bytes(), 512);
  EXPECT_EQ(host.current_bytes(), 1024);
}

TEST(Accounts, RefuseScopeOfAnotherKindOfDevice) {
  MemoryAccount gpu = cuda_account("rank 0");
  EXPECT_THROW(AccountScope(&gpu, DeviceKind::kCpu), InternalError);
}

}  // namespace
}  // namespace strata
