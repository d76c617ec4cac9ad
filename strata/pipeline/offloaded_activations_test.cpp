// Tests with a device that runs asynchronously, so that every missing wait shows.
#include "strata/pipeline/offloaded_activations.h"

#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include "strata/base/errors.h"
#include "strata/tier/delayed_device_test.h"

namespace strata {
namespace {

constexpr std::int64_t kNumel = 256;

struct Offloaded : testing::Test, DelayedDevice {
  at::Tensor made(float value) const {
    at::Tensor x = at::empty({kNumel}, host_options(at::kFloat));
    fill(x, value);
    return x;
  }
  void offload(int layer, float value) { activations.offload(layer, 0, {made(value)}); }
  void use(int layer, double& sum) { add_up(activations.take(layer, 0)[0], sum); }

  MemoryAccount host{"host"};
  Link link{{}, nullptr, streams.to_device, streams.to_host};
  OffloadedActivations activations{link, streams.compute, &host};
  double sum = 0, other = 0;
};

TEST_F(Offloaded, AreCopiedAfterTheyAreComputed) {
  compute->hold();
  offload(0, 3);
  let_others_run();
  compute->release();
  activations.fetch(0, 0);
  use(0, sum);
  compute->synchronize();
  EXPECT_EQ(sum, 3 * kNumel);
}

TEST_F(Offloaded, MemoryIsReusedAfterTheirCopy) {
  out->hold();
  offload(0, 3);
  offload(1, 5);
  let_others_run();
  out->release();
  for (const int layer : {1, 0}) activations.fetch(layer, 0);
  use(1, other);
  use(0, sum);
  compute->synchronize();
  EXPECT_EQ(sum, 3 * kNumel);
  EXPECT_EQ(other, 5 * kNumel);
}

TEST_F(Offloaded, ReturnAfterOffloadAndAfterPreviousUserOfMemory) {
  compute->synchronize();
  out->hold();
  offload(0, 3);
  activations.fetch(0, 0);
  use(0, sum);
  let_others_run();
  out->release();
  compute->synchronize();
  EXPECT_EQ(sum, 3 * kNumel);
  offload(1, 5);
  out->synchronize();
  compute->hold();
  activations.fetch(1, 0);
  const Completion arrived = in->record();
  let_others_run();
  EXPECT_FALSE(arrived.ready());  // the memory may still be in use
  compute->release();
  use(1, other);
  compute->synchronize();
  EXPECT_EQ(other, 5 * kNumel);
}

TEST_F(Offloaded, AreUsedAfterTheirArrival) {
  offload(0, 3);
  in->hold();
  activations.fetch(0, 0);
  use(0, sum);
  let_others_run();
  in->release();
  compute->synchronize();
  EXPECT_EQ(sum, 3 * kNumel);
}

TEST_F(Offloaded, HostMemoryIsOverwrittenAfterItsCopy) {
  offload(0, 3);
  in->hold();
  activations.fetch(0, 0);
  const at::Tensor back = activations.take(0, 0)[0];
  const std::int64_t bytes = host.current_bytes();
  activations.offload(1, 0, {at::full({kNumel}, 5.0f)});  // in the same place
  EXPECT_EQ(host.current_bytes(), bytes);
  let_others_run();
  in->release();
  in->synchronize();
  EXPECT_EQ(back.sum().item<double>(), 3 * kNumel);
}

TEST_F(Offloaded, AreFreedAfterTheirCopiesIfStepEndsEarly) {
  offload(0, 3);
  in->hold();
  activations.fetch(0, 0);
  const auto* const place = static_cast<const float*>(DelayedMemory::last());
  activations.clear();
  EXPECT_THROW(activations.take(0, 0), InternalError);
  let_others_run();
  in->release();
  in->synchronize();
  compute->synchronize();
  EXPECT_NE(place[0], 3.0f);  // freed after the copy
  offload(0, 4);
  activations.fetch(0, 0);
  use(0, sum);
  compute->synchronize();
  EXPECT_EQ(sum, 4 * kNumel);
}

TEST_F(Offloaded, IntegersStayOnDevice) {
  const at::Tensor tokens = at::full({4}, 7, host_options(at::kLong));
  activations.offload(0, 0, {tokens, made(3)});
  activations.fetch(0, 0);
  const std::vector<at::Tensor> back = activations.take(0, 0);
  EXPECT_TRUE(back[0].is_same(tokens));
  EXPECT_EQ(back[1].numel(), kNumel);
}

}  // namespace
}  // namespace strata
