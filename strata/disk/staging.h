/// Computes what layers on disk need: chunks that hold them, and staging buffers in host memory.
/// The store that moves the bytes and the ledger that counts them use the same numbers.
///
/// An update of layer k runs while k + 1 is read and k - 1 is written, so three staging buffers of
/// the largest layer hide all but the slowest of the three. Weights that are fetched for computing
/// use separate buffers: one is read while the previous one is copied to the device.
///
/// Weights on the host are written from their place; they are copied if the disk cannot use that
/// memory.
///
/// Gradients use three buffers of their own: during a backward one is filled while the previous one
/// is written, and during the updates one is read while another is used. They belong to one step,
/// so a separate file has one slot for each, and no commit holds them.
///
/// Units  bytes; for one rank.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace strata {

/// This rank's shard of a layer whose optimizer states are on disk.
struct LayerOnDisk {
  std::int64_t weights = 0;      ///< as layers compute with them
  std::int64_t states = 0;       ///< of the optimizer and, with 16-bit weights, their fp32 copies
  bool weights_on_host = false;  ///< then only commits write them to the disk
  bool fetches_weights = false;  ///< the device has them only while layers need them
  std::int64_t gradients = 0;    ///< fp32; 0: they do not live on disk
};

/// The chunks of a layer in its files; -1: none of this kind.
struct LayerChunks {
  int weights = -1;
  int states = -1;
  int gradients = -1;  ///< in the file of gradients
};

/// The chunks of layers in their order.
struct ChunkTable {
  std::vector<std::int64_t> bytes;      ///< by chunk
  std::vector<std::int64_t> gradients;  ///< by chunk of the file of gradients
  std::vector<LayerChunks> layers;
};
ChunkTable chunk_table(std::span<const LayerOnDisk> layers);

/// The bytes of the layers' files: two slots per chunk, one for gradients.
std::int64_t file_bytes(std::span<const LayerOnDisk> layers);

/// The host memory for the layers while the rank trains.
struct DiskStaging {
  int update_buffers = 0;
  std::int64_t update_buffer_bytes =
      0;  ///< weights (unless they are on the host) and states of a layer
  int fetch_buffers = 0;
  std::int64_t fetch_buffer_bytes = 0;  ///< weights of a layer
  int gradient_buffers = 0;
  std::int64_t gradient_buffer_bytes = 0;  ///< gradients of a layer
  std::int64_t copy_bytes = 0;             ///< the file's copy buffers for weights on the host
  std::int64_t bytes() const {
    return update_buffers * update_buffer_bytes + fetch_buffers * fetch_buffer_bytes +
           gradient_buffers * gradient_buffer_bytes + copy_bytes;
  }
};
DiskStaging disk_staging(std::span<const LayerOnDisk> layers);

}  // namespace strata
