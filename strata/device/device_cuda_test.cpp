#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include <thread>

#include "strata/device/device.h"

namespace strata {
namespace {

constexpr Device kFirst{DeviceKind::kCuda, 0};

TEST(CudaDevices, AreChosenByAutoAndHaveFacts) {
  EXPECT_EQ(Device::parse("auto"), kFirst);
  const DeviceFacts facts = cuda_backend().facts(0);
  EXPECT_FALSE(facts.name.empty());
  EXPECT_GT(facts.bytes, std::int64_t{1} << 30);
  EXPECT_GT(facts.multiprocessors, 0);
  EXPECT_EQ(facts.capability.find('.'), 1U);
}

// Two threads bound to one device submit to one stream, so they need no events between them.
TEST(CudaStreams, AreSharedByThreadsOfOneDevice) {
  at::Tensor x;
  std::thread([&] {
    const DeviceScope scope(kFirst);
    x = at::ones({1 << 20}, kFirst.options(at::kFloat));
    for (int i = 0; i < 100; ++i) x.mul_(1.0);
    x.add_(1.0);
  }).join();
  const DeviceScope scope(kFirst);
  EXPECT_EQ(x.mean().item<float>(), 2.0f);
  EXPECT_EQ(Stream::compute(kFirst).native(), Stream::compute(kFirst).native());
  EXPECT_NE(Stream(kFirst).native(), Stream::compute(kFirst).native());
}

TEST(CudaEvents, OrderStreamsAndRecordTime) {
  const DeviceScope scope(kFirst);
  const Stream compute = Stream::compute(kFirst), other(kFirst);
  const Completion begin = compute.record(EventTime::kKnown);
  at::Tensor x = at::ones({1 << 24}, kFirst.options(at::kFloat));
  for (int i = 0; i < 20; ++i) x.mul_(1.0);
  const Completion end = compute.record(EventTime::kKnown);
  other.wait(end);
  const Completion later = other.record();
  later.wait();
  EXPECT_TRUE(end.ready());
  EXPECT_GT(seconds_between(begin, end), 0);
}

}  // namespace
}  // namespace strata
