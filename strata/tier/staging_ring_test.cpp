#include "strata/tier/staging_ring.h"

#include <gtest/gtest.h>

#include <cstdint>

#include "strata/base/errors.h"
#include "strata/device/account.h"

namespace strata {
namespace {

TEST(StagingRing, ChargesItsBuffersWhileItLives) {
  MemoryAccount account("host", 20'000);
  {
    StagingRing ring(2, 8192, &account);
    EXPECT_EQ(account.current_bytes(), 2 * 8192);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(ring.take(0).bytes.data_ptr()) % 4096, 0u);
    EXPECT_THROW(aligned_bytes(4096, &account), SystemError);
    EXPECT_EQ(account.current_bytes(), 2 * 8192);
  }
  EXPECT_EQ(account.current_bytes(), 0);
}

TEST(StagingRing, ReusesOldestUnpinnedBuffer) {
  StagingRing ring(3, 4096, nullptr);
  StagingBuffer* const first = &ring.take(10);
  StagingBuffer* const second = &ring.take(11);
  StagingBuffer* const third = &ring.take(12);
  EXPECT_EQ(ring.of(11), second);
  first->pins = 1;
  EXPECT_EQ(&ring.take(13), second);
  EXPECT_EQ(ring.of(11), nullptr);
  EXPECT_EQ(ring.of(10), first);
  first->pins = 0;
  EXPECT_EQ(&ring.take(14), first);
  EXPECT_EQ(&ring.take(15), third);
}

// of() returns the buffer that the layer took last.
TEST(StagingRing, LayerHasOneBuffer) {
  StagingRing ring(3, 4096, nullptr);
  ring.take(10);
  StagingBuffer* const again = &ring.take(10);
  EXPECT_EQ(ring.of(10), again);
  again->pins = 1;
  EXPECT_THROW(ring.take(10), InternalError);
}

TEST(StagingRing, ReportsTooManyPins) {
  StagingRing ring(1, 4096, nullptr);
  ring.take(1).pins = 1;
  try {
    ring.take(2);
    FAIL() << "it was given out twice";
  } catch (const InternalError& error) {
    EXPECT_EQ(error.text().where, "layer 2");
  }
}

// The next user finds no bytes of the former layer, and the work that still uses them.
TEST(StagingRing, NextUserWaitsForEarlierUsers) {
  StagingRing ring(1, 4096, nullptr);
  StagingBuffer& buffer = ring.take(1);
  buffer.busy.emplace_back();
  buffer.complete.emplace_back();
  EXPECT_EQ(ring.take(2).busy.size(), 1u);
  EXPECT_TRUE(ring.take(2).complete.empty());
}

}  // namespace
}  // namespace strata
