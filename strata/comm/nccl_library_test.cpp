// Runs NCCL itself on a GPU, with a single rank, because it rejects two ranks on one GPU.
#include <ATen/ops/arange.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/equal.h>
#include <gtest/gtest.h>

#include <vector>

#include "strata/comm/communicator.h"

namespace strata {
namespace {

TEST(NcclLibrary, JoinsAnswersAndLeaves) {
  const CollectiveLibrary& library = nccl_library();
  if (!library.present()) GTEST_SKIP() << "this build has no NCCL";
  EXPECT_GE(library.version(), 21800);  // non-blocking communicators
  constexpr Device kGpu{DeviceKind::kCuda, 0};
  const DeviceScope scope(kGpu);
  EXPECT_EQ(library.device_id(kGpu), library.device_id(kGpu));
  const Stream compute = Stream::compute(kGpu), communication(kGpu);
  Communicator alone(library, library.unique_id(), /*rank=*/0, {0}, kGpu,
                     {.failed = [] { return false; },
                      .fail = [](const Error& error, LibraryFailure) { FAIL() << error.what(); }});
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
    const at::Tensor x = at::arange(1000, kGpu.options(dtype)), sum = x.clone(),
                     all = at::empty_like(x), own = at::empty_like(x);
    communication.wait(compute.record());
    alone.all_reduce_sum(sum, communication);
    alone.all_gather(sum, all, communication);
    const std::vector<FlatRange> shards = {{0, 1000}};
    alone.reduce_scatter_sum(all, shards, own, communication);
    alone.exchange({}, {}, communication);
    compute.wait(communication.record());
    EXPECT_TRUE(at::equal(own, x)) << c10::toString(dtype);
  }
  EXPECT_TRUE(alone.state().done);
  alone.begin_finish();
  alone.finish();
}

}  // namespace
}  // namespace strata
