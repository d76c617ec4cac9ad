#include "strata/tier/flat_buffer.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include <memory>

#include "strata/base/errors.h"

namespace strata {
namespace {

TEST(FlatBuffer, ViewsFollowBytes) {
  FlatBuffer buffer(8, at::kFloat, Device{});
  EXPECT_FALSE(buffer.present());
  const at::Tensor view = buffer.tensor().narrow(0, 4, 4).view({2, 2});
  buffer.install(at::arange(8, at::kFloat));
  EXPECT_EQ(view.sum().item<float>(), 4 + 5 + 6 + 7);
  const at::Tensor bytes = buffer.remove();
  EXPECT_EQ(bytes.sum().item<float>(), 28);
  buffer.install(at::full({8}, 2.0f));
  EXPECT_EQ(view.sum().item<float>(), 8);
}

TEST(FlatBuffer, SavedTensorsFollowBytesBetweenForwardAndBackward) {
  FlatBuffer buffer(4, at::kFloat, Device{});
  buffer.install(at::arange(1, 5, at::kFloat));
  const at::Tensor leaf = buffer.tensor().detach().requires_grad_(true);
  const at::Tensor y = (leaf * leaf).sum();
  const at::Tensor bytes = buffer.remove().clone();  // the same values elsewhere
  buffer.install(bytes);
  y.backward();
  EXPECT_TRUE(at::equal(leaf.grad(), 2 * at::arange(1, 5, at::kFloat)));
}

TEST(FlatBuffer, KeepsRemovedBytesAliveForViews) {
  at::Tensor view;
  std::weak_ptr<int> alive;
  {
    const auto owner = std::make_shared<int>(0);
    alive = owner;
    const at::Tensor values = at::arange(4, at::kFloat);
    FlatBuffer buffer(4, at::kFloat, Device{});
    buffer.install(at::from_blob(values.data_ptr(), {4}, [owner, values](void*) {}));
    view = buffer.tensor().narrow(0, 2, 2);
  }
  EXPECT_FALSE(alive.expired());
  view.reset();
  EXPECT_TRUE(alive.expired());
}

TEST(FlatBuffer, RefusesBytesThatDoNotFit) {
  FlatBuffer buffer(4, at::kFloat, Device{});
  EXPECT_THROW(buffer.remove(), InternalError);
  EXPECT_THROW(buffer.install(at::full({5}, 0.0f)), InternalError);
  buffer.install(at::full({4}, 0.0f));
  EXPECT_THROW(buffer.install(at::full({4}, 0.0f)), InternalError);
}

}  // namespace
}  // namespace strata
