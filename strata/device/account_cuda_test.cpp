#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include <thread>

#include "strata/base/errors.h"
#include "strata/device/account.h"
#include "strata/device/charge_map.h"
#include "strata/device/link.h"
#include "strata/device/pinned.h"

namespace strata {
namespace {

constexpr Device kGpu{DeviceKind::kCuda, 0};

class CudaAccounts : public ::testing::Test {
 protected:
  CudaAccounts() { install_accounting_allocator(); }
  MemoryAccount account_{"rank 0", 0, "memory.device", DeviceKind::kCuda};
  DeviceScope on_device_{kGpu};
};

TEST_F(CudaAccounts, CountRequestedBytes) {
  at::Tensor one, many;
  {
    const AccountScope scope(account_);
    one = at::empty({1}, kGpu.options(at::kFloat));
    many = at::empty({1'000'003}, kGpu.options(at::kFloat));
  }
  EXPECT_EQ(account_.current_bytes(), 4 + 4'000'012);
  const DeviceMemory memory = device_memory(kGpu);
  EXPECT_GE(memory.allocated_bytes, memory.requested_bytes);
  EXPECT_GE(memory.reserved_bytes, memory.allocated_bytes);
  EXPECT_GT(memory.total_bytes, memory.reserved_bytes);
  std::thread([&] { many.reset(); }).join();
  EXPECT_EQ(account_.current_bytes(), 4);
  one.reset();
  EXPECT_EQ(account_.current_bytes(), 0);
}

TEST_F(CudaAccounts, MoveChargeWithTensor) {
  MemoryAccount receiver("rank 1", 0, "memory.device", DeviceKind::kCuda);
  at::Tensor tensor;
  {
    const AccountScope scope(account_);
    tensor = at::empty({256}, kGpu.options(at::kFloat));
  }
  charge_to(tensor.view({16, 16}), receiver);
  EXPECT_EQ(account_.current_bytes(), 0);
  EXPECT_EQ(receiver.current_bytes(), 1024);
  tensor.reset();
  EXPECT_EQ(receiver.current_bytes(), 0);
}

TEST_F(CudaAccounts, RefuseAllocationBeyondDeviceLimit) {
  constexpr std::int64_t kBudget = std::int64_t{1} << 30;
  limit_device_memory(kGpu, kBudget);
  try {
    at::empty({2 * kBudget}, kGpu.options(at::kByte));
    ADD_FAILURE() << "twice the budget was allocated";
  } catch (const c10::Error& error) {
    const Error ours = device_error(error, account_);
    EXPECT_EQ(ours.kind(), ErrorKind::kSystem);
    EXPECT_EQ(ours.text().where, "rank 0");
  }
  limit_device_memory(kGpu, 0);
  EXPECT_NO_THROW(at::empty({2 * kBudget}, kGpu.options(at::kByte)));
}

TEST_F(CudaAccounts, LinkCopiesBothWaysDuringCompute) {
  TrackTrace trace;
  const std::int64_t bytes = std::int64_t{64} << 20;
  const at::Tensor in = pinned_bytes(bytes, kGpu, nullptr),
                   out = pinned_bytes(bytes, kGpu, nullptr);
  in.fill_(5);
  {
    Link link({}, &trace, kGpu);
    const at::Tensor device = at::empty({bytes}, kGpu.options(at::kByte));
    const Stream compute = Stream::compute(kGpu);
    const Completion there = link.to_device(device, in, {compute.record()}, 3);
    compute.wait(there);
    device.add_(2);
    const Completion back = link.to_host(out, device, {compute.record()}, 4);
    compute.wait(back);
    back.wait();
  }
  EXPECT_TRUE(out.eq(7).all().item<bool>());
  const std::vector<TrackEvent> events = trace.take();
  ASSERT_EQ(events.size(), 2);
  for (const TrackEvent& event : events) EXPECT_GT(event.end_seconds, event.begin_seconds);
}

}  // namespace
}  // namespace strata
