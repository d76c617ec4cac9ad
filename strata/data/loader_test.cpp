#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <vector>

#include "strata/base/errors.h"
#include "strata/base/scratch_folder.h"
#include "strata/data/loader.h"

namespace strata {
namespace {

constexpr std::int64_t kContext = 4;

class LoaderTest : public ::testing::Test {
 protected:
  // 20 windows for training and 5 for validation; byte i is i, so its first byte identifies a
  // window.
  LoaderTest() {
    std::ofstream file(folder_.path("a.txt"), std::ios::binary);
    for (int i = 0; i < 25 * kContext + 1; ++i) file.put(static_cast<char>(i));
    file.close();
    corpus_ =
        open_corpus({.train = folder_.path("a.txt"), .validation_fraction = 0.2}, kContext, 256);
  }
  static at::Tensor first_tokens(const MiniBatch& batch) { return batch.inputs[0].select(1, 0); }

  ScratchFolder folder_;
  Corpus corpus_;
};

TEST_F(LoaderTest, MakesTokensAndTargetsShiftedByOne) {
  const TrainingLoader loader(corpus_.train, true, 1);
  const MiniBatch batch = loader.at(0, 3);
  EXPECT_EQ(batch.samples, 3);
  EXPECT_EQ(batch.valid_tokens, 3 * kContext);
  ASSERT_EQ(batch.inputs.size(), 2u);
  EXPECT_EQ(batch.inputs[0].scalar_type(), at::kLong);
  EXPECT_EQ(batch.inputs[0].sizes(), (at::IntArrayRef{3, kContext}));
  EXPECT_TRUE(at::equal(batch.inputs[0] + 1, batch.inputs[1]));
}

TEST_F(LoaderTest, ReturnsSameSamplesFromAnyPosition) {
  const TrainingLoader loader(corpus_.train, true, 1);
  const at::Tensor run = first_tokens(loader.at(0, 60));  // three epochs
  for (std::int64_t seen = 0; seen < 60; ++seen) {
    const std::int64_t rest = std::min<std::int64_t>(7, 60 - seen);
    const TrainingLoader resumed(corpus_.train, true, 1);
    EXPECT_TRUE(at::equal(first_tokens(resumed.at(seen, rest)), run.slice(0, seen, seen + rest)));
  }
}

TEST_F(LoaderTest, ContinuesIntoNextEpochWithoutShortBatch) {
  const TrainingLoader loader(corpus_.train, true, 1);
  ASSERT_EQ(corpus_.train.count, 20);
  EXPECT_EQ(loader.at(18, 6).samples, 6);
  EXPECT_DOUBLE_EQ(loader.epochs(30), 1.5);
  for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
    const at::Tensor visited = std::get<0>(at::sort(first_tokens(loader.at(20 * epoch, 20))));
    EXPECT_TRUE(at::equal(visited, at::arange(0, 80, kContext)));
  }
}

TEST_F(LoaderTest, NeverTrainsOnValidationWindows) {
  const TrainingLoader loader(corpus_.train, true, 1);
  EXPECT_LT(loader.at(0, 200).inputs[0].max().item<std::int64_t>(), 80);
}

TEST_F(LoaderTest, ValidatesEveryWindowOnceWithShortLastBatch) {
  const ValidationLoader loader(corpus_.validation);
  ASSERT_EQ(loader.samples(), 5);
  EXPECT_TRUE(at::equal(first_tokens(loader.at(0, 3)), at::tensor({80, 84, 88}, at::kLong)));
  EXPECT_TRUE(at::equal(first_tokens(loader.at(3, 3)), at::tensor({92, 96}, at::kLong)));
  EXPECT_EQ(loader.at(3, 3).valid_tokens, 2 * kContext);
  EXPECT_EQ(loader.at(6, 3).samples, 0);
}

}  // namespace
}  // namespace strata
