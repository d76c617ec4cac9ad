#include "strata/disk/staging.h"

#include <gtest/gtest.h>

#include "strata/disk/chunk_file.h"

namespace strata {
namespace {

constexpr std::int64_t kBlock = 4096;

TEST(Staging, ChunksAreWholeBlocksInTheOrderOfLayers) {
  const std::vector<LayerOnDisk> layers = {{.weights = 1, .states = kBlock},
                                           {},
                                           {.weights = kBlock + 1, .states = 0},
                                           {.weights = 10, .states = 2 * kBlock}};
  const ChunkTable table = chunk_table(layers);
  EXPECT_EQ(table.bytes,
            (std::vector<std::int64_t>{kBlock, kBlock, 2 * kBlock, kBlock, 2 * kBlock}));
  const int expected[][2] = {{0, 1}, {-1, -1}, {2, -1}, {3, 4}};
  for (std::size_t i = 0; i < layers.size(); ++i) {
    EXPECT_EQ(table.layers[i].weights, expected[i][0]) << i;
    EXPECT_EQ(table.layers[i].states, expected[i][1]) << i;
  }
  EXPECT_EQ(file_bytes(layers), ChunkFile::file_bytes(table.bytes));
  EXPECT_EQ(file_bytes(layers), 2 * 7 * kBlock);
}

TEST(Staging, BuffersAreFewAndFitLargestLayer) {
  const LayerOnDisk small{.weights = 100, .states = 200, .fetches_weights = true};
  const LayerOnDisk large{.weights = kBlock + 1, .states = 3 * kBlock, .fetches_weights = true};
  EXPECT_EQ(disk_staging({}).bytes(), 0);
  const DiskStaging one = disk_staging(std::vector{small});
  EXPECT_EQ(one.update_buffers, 1);
  EXPECT_EQ(one.fetch_buffers, 1);
  EXPECT_EQ(one.bytes(), 2 * kBlock + kBlock);
  for (const int layers : {4, 400}) {
    std::vector<LayerOnDisk> all(static_cast<std::size_t>(layers), small);
    all[2] = large;
    const DiskStaging staging = disk_staging(all);
    EXPECT_EQ(staging.update_buffers, 3);
    EXPECT_EQ(staging.update_buffer_bytes, 5 * kBlock);
    EXPECT_EQ(staging.fetch_buffers, 2);
    EXPECT_EQ(staging.fetch_buffer_bytes, 2 * kBlock);
    EXPECT_EQ(staging.bytes(), 3 * 5 * kBlock + 2 * 2 * kBlock);
  }
}

TEST(Staging, GradientsUseThreeBuffersAndOneSlotEach) {
  const LayerOnDisk whole{.weights = kBlock, .states = kBlock, .gradients = kBlock + 4};
  const LayerOnDisk without{.weights = 9 * kBlock, .states = kBlock};
  const std::vector<LayerOnDisk> layers = {whole, without, whole, whole, whole};
  const ChunkTable table = chunk_table(layers);
  EXPECT_EQ(table.gradients, std::vector<std::int64_t>(4, 2 * kBlock));
  EXPECT_EQ(table.layers[1].gradients, -1);
  EXPECT_EQ(table.layers[4].gradients, 3);
  EXPECT_EQ(table.bytes.size(), 10u);
  EXPECT_EQ(file_bytes(layers), 2 * (4 * 2 + 10) * kBlock + 4 * 2 * kBlock);
  const DiskStaging staging = disk_staging(layers);
  EXPECT_EQ(staging.gradient_buffers, 3);
  EXPECT_EQ(staging.bytes(), 3 * 10 * kBlock + 3 * 2 * kBlock);
  EXPECT_EQ(disk_staging(std::vector{whole}).gradient_buffers, 1);
}

TEST(Staging, WeightsOnHostUseNoBuffer) {
  const std::vector<LayerOnDisk> layers(
      5,
      {.weights = 9 * kBlock, .states = kBlock, .weights_on_host = true, .fetches_weights = true});
  const DiskStaging staging = disk_staging(layers);
  EXPECT_EQ(staging.fetch_buffers, 0);
  EXPECT_EQ(staging.bytes() - staging.copy_bytes, 3 * kBlock);
  const std::vector<LayerOnDisk> odd = {{.weights = 10, .states = 10, .weights_on_host = true}};
  EXPECT_EQ(chunk_table(odd).bytes, (std::vector<std::int64_t>{10, kBlock}));
}

// Reads and writes have two blocks each, as long as the longest chunk, at most 1 MiB.
TEST(Staging, CopyBuffersAreNoLongerThanChunks) {
  const auto copies = [](std::int64_t weights, bool on_host) {
    const LayerOnDisk layer{.weights = weights, .states = 8, .weights_on_host = on_host};
    return disk_staging(std::vector(3, layer)).copy_bytes;
  };
  EXPECT_EQ(copies(9 * kBlock, true), 2 * 2 * 9 * kBlock);
  EXPECT_EQ(copies(9 * kBlock - 5, true), 2 * 2 * 9 * kBlock);
  EXPECT_EQ(copies(900 * kBlock, true), 2 * 2 * (1 << 20));
  EXPECT_EQ(copies(900 * kBlock, false), 0);
}

TEST(Staging, WeightsThatStayOnTheDeviceNeedNoFetch) {
  const DiskStaging staging =
      disk_staging(std::vector<LayerOnDisk>(5, {.weights = kBlock, .states = 2 * kBlock}));
  EXPECT_EQ(staging.fetch_buffers, 0);
  EXPECT_EQ(staging.update_buffer_bytes, 3 * kBlock);
}

}  // namespace
}  // namespace strata
