/// Says what layers on disk need: the chunks that hold them, and the slabs of host memory that their
/// bytes pass through. A store that moves them and a ledger that counts them read the same numbers.
///
/// An update of layer k runs while k + 1 is read and k - 1 is written, so three slabs of the largest
/// layer hide all but the slowest of the three. Weights that are fetched to compute with take a way of
/// their own: one is read while the one before goes on to the device.
///
/// Weights that live on the host are written from where they are: on the way they are copied where the disk cannot
/// use that memory.
///
/// Units  bytes; of one rank.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace strata {

/// This rank's shard of a layer whose optimizer states live on disk.
struct LayerOnDisk {
  std::int64_t weights = 0;      ///< as layers compute with them
  std::int64_t states = 0;       ///< of the optimizer and, beside 16-bit weights, their fp32 ones
  bool weights_on_host = false;  ///< then only commits write them to the disk
  bool fetches_weights = false;  ///< the device has them only while layers need them
};

/// Where a layer lies in a file of chunks; -1: it has nothing of the kind.
struct LayerChunks {
  int weights = -1;
  int states = -1;
};

/// A file of chunks for layers in their order: sizes, and which are whose.
struct ChunkTable {
  std::vector<std::int64_t> bytes;  ///< by chunk
  std::vector<LayerChunks> layers;
};
ChunkTable chunk_table(std::span<const LayerOnDisk> layers);

/// What the disk needs for them: ChunkFile::file_bytes(), two slots a chunk.
std::int64_t disk_bytes(std::span<const LayerOnDisk> layers);

/// What the host needs for them, as long as the rank trains.
struct DiskStaging {
  int update_slabs = 0;
  std::int64_t update_slab_bytes =
      0;  ///< weights (unless they live on the host) and states of a layer
  int fetch_slabs = 0;
  std::int64_t fetch_slab_bytes = 0;  ///< weights of a layer
  std::int64_t copy_bytes = 0;        ///< of the file's own, for weights that live on the host
  std::int64_t bytes() const {
    return update_slabs * update_slab_bytes + fetch_slabs * fetch_slab_bytes + copy_bytes;
  }
};
DiskStaging disk_staging(std::span<const LayerOnDisk> layers);

}  // namespace strata
