// On a GPU: recordings replay, keep their memory, and leave nothing allocated when they fail.
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "strata/device/account.h"
#include "strata/device/recording.h"

namespace strata {
namespace {

class CudaRecordings : public ::testing::Test {
 protected:
  static constexpr Device kGpu{DeviceKind::kCuda, 0};
  CudaRecordings() { install_accounting_allocator(); }
  DeviceScope on_device_{kGpu};
};

TEST_F(CudaRecordings, ReplayDeviceWorkOnPrivateMemory) {
  at::Tensor sum = at::zeros({1000}, kGpu.options(at::kFloat)), made;
  {
    const auto recording = make_recording(kGpu);
    recording->record([&] {
      made = sum.add(1);
      sum.copy_(made);
    });
    EXPECT_FALSE(recording->does_as_it_records());
    EXPECT_EQ(sum.sum().item<float>(), 1000);
    const at::Tensor other = at::full({1000}, 7, kGpu.options(at::kFloat));
    for (int i = 0; i < 3; ++i) recording->replay();
    EXPECT_EQ(sum.sum().item<float>(), 4000);
    EXPECT_EQ(other.sum().item<float>(), 7000);
  }
  EXPECT_EQ(made.sum().item<float>(), 4000);  // the tensor outlives the recording
}

TEST_F(CudaRecordings, LeaveAllocatorUnchangedOnFailure) {
  const std::int64_t bytes = std::int64_t{64} << 20;
  const at::Tensor x = at::zeros({1}, kGpu.options(at::kFloat));
  const DeviceMemory before = device_memory(kGpu);
  for (const bool illegal : {false, true}) {
    const auto recording = make_recording(kGpu);
    EXPECT_ANY_THROW(recording->record([&] {
      const at::Tensor taken = at::full({bytes}, 1, kGpu.options(at::kByte));
      if (illegal) (void)taken.sum().item<double>();  // waits for the device
      throw std::runtime_error("the work failed");
    }));
  }
  // Other code can allocate the memory of failed recordings, and the driver gets it back when the
  // next recording begins.
  const auto recording = make_recording(kGpu);
  recording->record([&] { at::Tensor(x).add_(1); });
  EXPECT_LT(device_memory(kGpu).reserved_bytes, before.reserved_bytes + bytes);
  EXPECT_EQ(x.item<float>(), 1);
}

}  // namespace
}  // namespace strata
