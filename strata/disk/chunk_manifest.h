/// Describes which slot of every chunk belongs to a committed step, and its checksum; also for the
/// commit before, which is intact until the next write.
///
/// Errors  UserError: not JSON, a field missing or of the wrong type, damaged, of a later format.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace strata {

inline constexpr int kChunkFormat = 1;
inline constexpr const char* kChunkManifestName = "manifest.json";
inline constexpr const char* kChunkDataName = "chunks.data";

struct ChunkEntry {
  std::int64_t bytes = 0;
  std::uint64_t offset = 0;      ///< of slot 0 in the data file; slot 1 follows, aligned
  std::optional<int> slot = {};  ///< empty: never written
  std::uint64_t checksum = 0;    ///< block_digest() of the bytes
  // The same for the previous commit.
  std::optional<int> previous_slot = {};
  std::uint64_t previous_checksum = 0;
};

struct ChunkManifest {
  std::int64_t step = 0;
  std::string user_text;
  std::optional<std::int64_t> previous_step = {};
  std::string previous_text = {};
  std::vector<ChunkEntry> chunks;
};

/// Lays out chunks one after another, with this many aligned slots each.
std::vector<ChunkEntry> lay_out_chunks(const std::vector<std::int64_t>& chunk_bytes, int slots = 2);

/// Bytes of the data file.
std::int64_t data_bytes(const std::vector<ChunkEntry>& chunks, int slots = 2);

/// Bytes from the beginning of slot 0 to that of slot 1.
std::uint64_t slot_bytes(std::int64_t chunk_bytes);

/// Returns JSON that ends with a checksum of the rest.
std::string write_chunk_manifest(const ChunkManifest& manifest);

/// `path` names the manifest in errors.
ChunkManifest parse_chunk_manifest(const std::string& text, const std::string& path);

}  // namespace strata
