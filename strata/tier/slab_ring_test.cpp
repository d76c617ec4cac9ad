#include "strata/tier/slab_ring.h"

#include <gtest/gtest.h>

#include <cstdint>

#include "strata/base/errors.h"
#include "strata/device/account.h"

namespace strata {
namespace {

TEST(SlabRing, ChargesWhatItHoldsAsLongAsItLives) {
  MemoryAccount account("host", 20'000);
  {
    SlabRing ring(2, 8192, &account);
    EXPECT_EQ(account.current_bytes(), 2 * 8192);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(ring.take(0).bytes.data_ptr()) % 4096, 0u);
    EXPECT_THROW(aligned_bytes(4096, &account), SystemError);
    EXPECT_EQ(account.current_bytes(), 2 * 8192);
  }
  EXPECT_EQ(account.current_bytes(), 0);
}

TEST(SlabRing, GivesTheSlabThatWasTakenLongestAgoAndIsNotLeased) {
  SlabRing ring(3, 4096, nullptr);
  Slab* const first = &ring.take(10);
  Slab* const second = &ring.take(11);
  Slab* const third = &ring.take(12);
  EXPECT_EQ(ring.of(11), second);
  first->leases = 1;
  EXPECT_EQ(&ring.take(13), second);
  EXPECT_EQ(ring.of(11), nullptr);
  EXPECT_EQ(ring.of(10), first);
  first->leases = 0;
  EXPECT_EQ(&ring.take(14), first);
  EXPECT_EQ(&ring.take(15), third);
}

// Whoever looks for a layer's bytes finds the last ones.
TEST(SlabRing, ALayerHasOneSlab) {
  SlabRing ring(3, 4096, nullptr);
  ring.take(10);
  Slab* const again = &ring.take(10);
  EXPECT_EQ(ring.of(10), again);
  again->leases = 1;
  EXPECT_THROW(ring.take(10), InternalError);
}

TEST(SlabRing, SaysThatTooManyAreLeased) {
  SlabRing ring(1, 4096, nullptr);
  ring.take(1).leases = 1;
  try {
    ring.take(2);
    FAIL() << "it was given out twice";
  } catch (const InternalError& error) {
    EXPECT_EQ(error.text().where, "layer 2");
  }
}

// What was in it is forgotten, who uses it is not.
TEST(SlabRing, WhoTakesASlabWaitsForThoseBeforeHim) {
  SlabRing ring(1, 4096, nullptr);
  Slab& slab = ring.take(1);
  slab.busy.emplace_back();
  slab.complete.emplace_back();
  EXPECT_EQ(ring.take(2).busy.size(), 1u);
  EXPECT_TRUE(ring.take(2).complete.empty());
}

}  // namespace
}  // namespace strata
