#include "strata/device/account.h"

#include <c10/core/Allocator.h>
#include <gtest/gtest.h>

#include <thread>

#include "strata/base/errors.h"

namespace strata {
namespace {

class MemoryAccountTest : public ::testing::Test {
 protected:
  void SetUp() override { install_accounting_allocator(); }
};

TEST_F(MemoryAccountTest, CountsAllocationsAndPeakOfThread) {
  MemoryAccount account("rank 0");
  {
    const AccountScope scope(account);
    at::Tensor a = at::empty({1024});
    EXPECT_EQ(account.current_bytes(), 4096);
    {
      at::Tensor b = at::empty({2048});
    }
    EXPECT_EQ(account.current_bytes(), 4096);
    EXPECT_EQ(account.peak_bytes(), 4096 + 8192);
  }
  EXPECT_EQ(account.current_bytes(), 0);
}

TEST_F(MemoryAccountTest, ChargesNothingOutsideScope) {
  MemoryAccount account("rank 0");
  at::Tensor a = at::empty({1024});
  EXPECT_EQ(account.current_bytes(), 0);
}

TEST_F(MemoryAccountTest, CreditsTheOwnerWhenAnotherThreadFrees) {
  MemoryAccount account("rank 0");
  at::Tensor tensor;
  {
    const AccountScope scope(account);
    tensor = at::empty({1024});
  }
  std::thread([moved = std::move(tensor)]() mutable { moved.reset(); }).join();
  EXPECT_EQ(account.current_bytes(), 0);
}

TEST_F(MemoryAccountTest, MovesTheChargeWithTheTensor) {
  MemoryAccount sender("rank 0"), receiver("rank 1");
  at::Tensor tensor;
  {
    const AccountScope scope(sender);
    tensor = at::empty({256});
  }
  charge_to(tensor.view({16, 16}), receiver);
  EXPECT_EQ(sender.current_bytes(), 0);
  EXPECT_EQ(receiver.current_bytes(), 1024);
  tensor.reset();
  EXPECT_EQ(receiver.current_bytes(), 0);
}

TEST_F(MemoryAccountTest, RefusesAllocationOverBudgetWithoutCharge) {
  MemoryAccount account("rank 3", /*budget_bytes=*/4096);
  const AccountScope scope(account);
  at::Tensor held = at::empty({512});
  try {
    at::empty({1024});
    FAIL() << "an allocation over the budget went through";
  } catch (const SystemError& error) {
    EXPECT_EQ(error.text().where, "rank 3");
  }
  EXPECT_EQ(account.current_bytes(), 2048);
}

TEST_F(MemoryAccountTest, KeepsTheAlignmentOfLibtorch) {
  for (int numel : {1, 3, 17, 1000}) {
    at::Tensor tensor = at::empty({numel});
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(tensor.data_ptr()) % 64, 0u);
  }
}

// oneDNN allocates like this for a product in 16 bit, on processors that have such products.
TEST_F(MemoryAccountTest, ServesRawMemoryAndChargesIt) {
  MemoryAccount account("rank 0", /*budget_bytes=*/8192);
  c10::Allocator* allocator = c10::GetAllocator(c10::kCPU);
  void* block = nullptr;
  {
    const AccountScope scope(account);
    block = allocator->raw_allocate(4096);
    EXPECT_THROW(allocator->raw_allocate(8192), SystemError);
  }
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block) % 64, 0u);
  EXPECT_EQ(account.current_bytes(), 4096);
  std::thread([&] { allocator->raw_deallocate(block); }).join();
  EXPECT_EQ(account.current_bytes(), 0);
  allocator->raw_deallocate(allocator->raw_allocate(0));
}

}  // namespace
}  // namespace strata
