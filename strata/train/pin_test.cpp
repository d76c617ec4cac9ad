// Tests training where every byte of a layer leaves the device unless it is pinned: the same bits
// show that no code reads or writes a layer's bytes without a pin.
#include <gtest/gtest.h>

#include "strata/base/errors.h"
#include "strata/tier/example_backends_test.h"
#include "strata/train/mesh_run_test.h"

namespace strata {
namespace {

// `spoil`: overwrites evicted bytes; not among replicas, whose peers may still read them.
void expect_same_bits_while_pinned(const MeshCase& c, bool spoil) {
  const MeshRecord pinned = train_on_mesh(c, [&](TrainerOptions& options) {
    options.backend = [=] { return std::make_unique<AwayBackend>(nullptr, spoil); };
    options.residency = Residency::kWhilePinned;
  });
  expect_same_bits(pinned, train_on_mesh(c));
}

TEST(WhilePinned, OneRankTrainsSameBits) {
  expect_same_bits_while_pinned(small_mesh_case({}, 0), true);
  MeshCase half = small_mesh_case({}, 0);
  half.precision = at::kBFloat16;
  expect_same_bits_while_pinned(half, true);
}

TEST(WhilePinned, StagesWithTiedWeightTrainSameBits) {
  expect_same_bits_while_pinned(small_mesh_case({{Axis::kPipeline, 2}}, 0), true);
  expect_same_bits_while_pinned(small_mesh_case({{Axis::kPipeline, 2}}, 0, /*tie=*/false), true);
}

TEST(WhilePinned, ReplicasWithShardedStatesTrainSameBits) {
  for (const int zero : {1, 2, 3})
    expect_same_bits_while_pinned(
        small_mesh_case({{Axis::kPipeline, 2}, {Axis::kData, 2}}, zero, zero == 1), false);
}

TEST(WhilePinned, FailingBackendEndsRunWithItsError) {
  for (const auto call :
       {FaultyBackend::Call::kFetch, FaultyBackend::Call::kWait, FaultyBackend::Call::kEvict}) {
    try {
      train_on_mesh(small_mesh_case({{Axis::kPipeline, 2}}, 0), [&](TrainerOptions& options) {
        options.backend = [=] {
          return std::make_unique<FaultyBackend>(std::make_unique<AwayBackend>(), call, 60);
        };
        options.residency = Residency::kWhilePinned;
      });
      FAIL() << "nothing failed";
    } catch (const SystemError& error) {
      EXPECT_EQ(error.text().what, "the disk is gone");
    }
  }
}

}  // namespace
}  // namespace strata
