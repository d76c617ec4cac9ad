#include "strata/tier/layer_state.h"

#include <gtest/gtest.h>

#include <array>

namespace strata {
namespace {

using enum Home;

constexpr std::int64_t kNumel = 8;

struct HomeCase {
  const char* name;
  ShardPlacement placement;
  std::array<Home, kNumStateKinds> homes;  // in the order of StateKind
};

TEST(LayerState, EachKindHasOneHome) {
  constexpr FlatRange kWhole{0, kNumel}, kHalf{0, kNumel / 2};
  constexpr LayerTiers kAllOnHost{Tier::kHost, Tier::kHost, Tier::kHost};
  constexpr LayerTiers kZeroOffload{Tier::kDevice, Tier::kHost, Tier::kHost};
  constexpr LayerTiers kAllOnDisk{Tier::kDisk, Tier::kDisk, Tier::kDisk};
  constexpr LayerTiers kStatesOnDisk{Tier::kHost, Tier::kHost, Tier::kDisk};
  // Homes of weights, weight shard, gradients, gradient shard, optimizer
  const HomeCase cases[] = {
      {"device",
       {.shard = kWhole, .optimizer_slots = 2},
       {kDevice, kDevice, kDevice, kDevice, kDevice}},
      {"ZeRO 3",
       {.shard = kHalf, .gathered_weights = true, .optimizer_slots = 2},
       {kPeers, kDevice, kDevice, kDevice, kDevice}},
      {"host",
       {.shard = kWhole, .tiers = kAllOnHost, .optimizer_slots = 2},
       {kHostCopy, kHost, kOffloaded, kHost, kHost}},
      {"ZeRO-Offload",
       {.shard = kWhole, .tiers = kZeroOffload, .optimizer_slots = 2},
       {kHostCopy, kHost, kOffloaded, kHost, kHost}},
      {"host, replicas gather after the update",
       {.shard = kHalf, .tiers = kZeroOffload, .optimizer_slots = 2},
       {kDevice, kHost, kOffloaded, kHost, kHost}},
      {"disk",
       {.shard = kWhole, .tiers = kAllOnDisk, .optimizer_slots = 2},
       {kDiskCopy, kDisk, kOffloaded, kDisk, kDisk}},
      {"disk, ZeRO 3",
       {.shard = kHalf, .gathered_weights = true, .tiers = kAllOnDisk, .optimizer_slots = 2},
       {kPeers, kDisk, kOffloaded, kDisk, kDisk}},
      {"disk, states alone",
       {.shard = kWhole, .tiers = kStatesOnDisk, .optimizer_slots = 2},
       {kHostCopy, kHost, kOffloaded, kHost, kDisk}},
      {"disk, no states",
       {.shard = kWhole, .tiers = kAllOnDisk},
       {kDiskCopy, kDisk, kOffloaded, kDisk, kHost}},
      {"disk, shared gradient buffers",
       {.shard = kWhole, .borrows_gradients = true, .tiers = kAllOnDisk, .optimizer_slots = 2},
       {kDiskCopy, kDisk, kOffloaded, kHost, kDisk}},
      {"disk, empty shard",
       {.tiers = kAllOnDisk, .optimizer_slots = 2},
       {kDevice, kHost, kOffloaded, kHost, kHost}},
  };
  for (const HomeCase& c : cases)
    for (int kind = 0; kind < kNumStateKinds; ++kind)
      EXPECT_EQ(home_of(c.placement, kNumel, static_cast<StateKind>(kind)), c.homes[kind])
          << c.name << ": " << name_of(static_cast<StateKind>(kind));
}

}  // namespace
}  // namespace strata
