#include "strata/device/pinned.h"

#include <gtest/gtest.h>

#include "strata/base/errors.h"
#include "strata/device/account.h"

namespace strata {
namespace {

TEST(PinnedMemory, HasExactSizeAndIsCharged) {
  MemoryAccount account("host");
  {
    at::Tensor half;
    {
      const at::Tensor bytes = pinned_bytes(3'000'001, {}, &account);
      EXPECT_EQ(bytes.numel(), 3'000'001);
      EXPECT_EQ(bytes.scalar_type(), at::kByte);
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(bytes.data_ptr()) % 4096, 0U);
      EXPECT_EQ(bytes.sum().item<std::int64_t>(), 0);
      EXPECT_EQ(account.current_bytes(), 3'000'001);
      half = bytes.slice(0, 1'500'000);
    }
    half.fill_(7);
    EXPECT_EQ(account.current_bytes(), 3'000'001);
  }
  EXPECT_EQ(account.current_bytes(), 0);
}

TEST(PinnedMemory, IsUnchargedWithoutAccount) {
  EXPECT_EQ(pinned_bytes(10, {}, nullptr).numel(), 10);
}

TEST(PinnedMemory, IsRefusedOverTheBudgetOrTheMachine) {
  MemoryAccount account("host", 1000, "memory.host");
  EXPECT_THROW(pinned_bytes(1001, {}, &account), SystemError);
  EXPECT_EQ(account.current_bytes(), 0);
  MemoryAccount boundless("host");
  EXPECT_THROW(pinned_bytes(std::int64_t{1} << 60, {}, &boundless), SystemError);
  EXPECT_EQ(boundless.current_bytes(), 0);
}

TEST(PinnedMemory, IsRefusedForMissingDevice) {
  if (cuda_backend().count() > 0) GTEST_SKIP() << "a GPU is there";
  MemoryAccount account("host");
  EXPECT_THROW(pinned_bytes(10, {DeviceKind::kCuda, 0}, &account), UserError);
  EXPECT_EQ(account.current_bytes(), 0);
}

}  // namespace
}  // namespace strata
