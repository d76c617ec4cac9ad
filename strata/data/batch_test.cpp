#include "strata/data/batch.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "strata/base/errors.h"

namespace strata {
namespace {

MiniBatch batch_of(std::int64_t samples) {
  const at::Tensor tokens = at::arange(samples * 3).view({samples, 3});
  return {.inputs = {tokens, tokens + 1}, .samples = samples, .valid_tokens = samples * 3};
}

TEST(Split, LastSliceMayBeShorter) {
  const MiniBatch batch = batch_of(7);
  const std::vector<MicroBatch> parts = split(batch, 3);
  ASSERT_EQ(parts.size(), 3u);
  EXPECT_EQ(parts[0].first_sample, 0);
  EXPECT_EQ(parts[1].first_sample, 3);
  EXPECT_EQ(parts[2].first_sample, 6);
  EXPECT_EQ(parts[2].inputs[0].size(0), 1);
  EXPECT_TRUE(at::equal(parts[1].inputs[1], batch.inputs[1].slice(0, 3, 6)));
}

TEST(Split, CopiesNothing) {
  const MiniBatch batch = batch_of(4);
  EXPECT_TRUE(split(batch, 2)[1].inputs[0].is_alias_of(batch.inputs[0]));
}

TEST(Split, ReturnsOneMicroBatchIfAllFits) {
  EXPECT_EQ(split(batch_of(4), 4).size(), 1u);
  EXPECT_EQ(split(batch_of(4), 100).size(), 1u);
  EXPECT_TRUE(split(batch_of(0), 4).empty());
}

TEST(Split, RejectsEmptyMicroBatches) { EXPECT_THROW(split(batch_of(4), 0), InternalError); }

TEST(ReplicaSamples, CoverEverySampleOnceInOrder) {
  for (const std::int64_t samples : {1, 2, 5, 7, 12, 31}) {
    for (const int replicas : {1, 2, 3, 5}) {
      for (const std::int64_t micro_batch : {1, 2, 4, 40}) {
        const MiniBatch whole = padded(batch_of(samples), replicas, micro_batch);
        std::int64_t next = 0;
        for (int replica = 0; replica < replicas; ++replica) {
          const SampleRange part = replica_samples(samples, replica, replicas, micro_batch);
          const MiniBatch padded_part = replica_batch(whole, replica, replicas);
          EXPECT_EQ(part.first, padded_part.first_sample);
          EXPECT_LE(part.samples, padded_part.samples);
          if (part.samples > 0) {
            EXPECT_EQ(part.first, next);
          }
          next += part.samples;
        }
        EXPECT_EQ(next, samples) << replicas << ' ' << micro_batch;
      }
    }
  }
}

}  // namespace
}  // namespace strata
