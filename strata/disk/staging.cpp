// Chunks and staging buffers are whole disk blocks, so that the disk moves them in place, including
// the last block. Weights on the host use no staging buffer: their chunk has their exact size.
#include "strata/disk/staging.h"

#include <algorithm>

#include "strata/disk/chunk_file.h"
#include "strata/disk/chunk_manifest.h"
#include "strata/disk/transfer_queue.h"

namespace strata {
namespace {

constexpr int kUpdateBuffers = 3;
constexpr int kFetchBuffers = 2;
constexpr int kGradientBuffers = 3;
constexpr int kWays = 2;  // a file has a queue for reads and one for writes

std::int64_t in_blocks(std::int64_t bytes) { return static_cast<std::int64_t>(slot_bytes(bytes)); }

}  // namespace

ChunkTable chunk_table(std::span<const LayerOnDisk> layers) {
  ChunkTable table;
  const auto add = [](std::vector<std::int64_t>& chunks, std::int64_t bytes) {
    if (bytes == 0) return -1;
    chunks.push_back(bytes);
    return static_cast<int>(chunks.size()) - 1;
  };
  for (const LayerOnDisk& layer : layers) {
    LayerChunks& chunks = table.layers.emplace_back();
    chunks.weights =
        add(table.bytes, layer.weights_on_host ? layer.weights : in_blocks(layer.weights));
    chunks.states = add(table.bytes, in_blocks(layer.states));
    chunks.gradients = add(table.gradients, in_blocks(layer.gradients));
  }
  return table;
}

std::int64_t file_bytes(std::span<const LayerOnDisk> layers) {
  const ChunkTable table = chunk_table(layers);
  return ChunkFile::file_bytes(table.bytes) + ChunkFile::file_bytes(table.gradients, /*slots=*/1);
}

DiskStaging disk_staging(std::span<const LayerOnDisk> layers) {
  DiskStaging staging;
  std::int64_t longest = 0;
  bool copies = false;
  for (const LayerOnDisk& layer : layers) {
    if (layer.weights == 0) continue;
    longest = std::max({longest, layer.weights, layer.states});
    copies |= layer.weights_on_host;
    staging.update_buffers = std::min(staging.update_buffers + 1, kUpdateBuffers);
    staging.update_buffer_bytes =
        std::max(staging.update_buffer_bytes,
                 in_blocks(layer.states) + (layer.weights_on_host ? 0 : in_blocks(layer.weights)));
    if (layer.gradients > 0) {
      staging.gradient_buffers = std::min(staging.gradient_buffers + 1, kGradientBuffers);
      staging.gradient_buffer_bytes =
          std::max(staging.gradient_buffer_bytes, in_blocks(layer.gradients));
    }
    if (!layer.fetches_weights || layer.weights_on_host) continue;
    staging.fetch_buffers = std::min(staging.fetch_buffers + 1, kFetchBuffers);
    staging.fetch_buffer_bytes = std::max(staging.fetch_buffer_bytes, in_blocks(layer.weights));
  }
  if (copies)
    staging.copy_bytes =
        kWays * static_cast<std::int64_t>(own_blocks_bytes(static_cast<std::size_t>(longest)));
  return staging;
}

}  // namespace strata
