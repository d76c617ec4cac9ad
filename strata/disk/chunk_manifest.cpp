#include "strata/disk/chunk_manifest.h"

#include <nlohmann/json.hpp>

#include "strata/base/checksum.h"
#include "strata/base/json_document.h"
#include "strata/base/manifest_checksum.h"
#include "strata/disk/transfer_queue.h"

namespace strata {
namespace {

using nlohmann::ordered_json;

const FileUse kUse{.operation = "disk.open", .fix = "resume from a checkpoint elsewhere"};

ChunkEntry read_entry(const JsonPart& fields, const ChunkEntry& expected) {
  ChunkEntry entry = expected;
  const JsonPart offset = fields.member("offset");
  if (static_cast<std::uint64_t>(offset.number()) != expected.offset)
    offset.refuse(std::to_string(expected.offset), offset.quoted());
  if (const JsonPart slot = fields.member("slot"); !slot.is_null()) {
    entry.slot = static_cast<int>(slot.number(0, 1));
    entry.checksum = read_checksum(fields.member("checksum"));
  }
  if (const JsonPart slot = fields.member("previous_slot"); !slot.is_null()) {
    entry.previous_slot = static_cast<int>(slot.number(0, 1));
    entry.previous_checksum = read_checksum(fields.member("previous_checksum"));
  }
  return entry;
}

}  // namespace

std::uint64_t slot_bytes(std::int64_t chunk_bytes) {
  const auto bytes = static_cast<std::uint64_t>(chunk_bytes);
  return (bytes + kDiskAlignment - 1) / kDiskAlignment * kDiskAlignment;
}

std::vector<ChunkEntry> lay_out_chunks(const std::vector<std::int64_t>& chunk_bytes, int slots) {
  std::vector<ChunkEntry> chunks;
  std::uint64_t offset = 0;
  for (const std::int64_t bytes : chunk_bytes) {
    chunks.push_back({.bytes = bytes, .offset = offset});
    offset += static_cast<std::uint64_t>(slots) * slot_bytes(bytes);
  }
  return chunks;
}

std::int64_t data_bytes(const std::vector<ChunkEntry>& chunks, int slots) {
  std::uint64_t bytes = 0;
  for (const ChunkEntry& chunk : chunks) bytes += slot_bytes(chunk.bytes);
  return slots * static_cast<std::int64_t>(bytes);
}

std::string write_chunk_manifest(const ChunkManifest& manifest) {
  ordered_json fields = {{"format_version", kChunkFormat},  {"step", manifest.step},
                         {"user_text", manifest.user_text}, {"alignment", kDiskAlignment},
                         {"block_bytes", kDiskBlockBytes},  {"chunks", ordered_json::array()}};
  if (manifest.previous_step) {
    fields["previous_step"] = *manifest.previous_step;
    fields["previous_text"] = manifest.previous_text;
  }
  for (const ChunkEntry& chunk : manifest.chunks) {
    ordered_json entry = {{"bytes", chunk.bytes}, {"offset", chunk.offset}};
    if (chunk.slot) {
      entry["slot"] = *chunk.slot;
      entry["checksum"] = checksum_text(chunk.checksum);
    }
    if (chunk.previous_slot) {
      entry["previous_slot"] = *chunk.previous_slot;
      entry["previous_checksum"] = checksum_text(chunk.previous_checksum);
    }
    fields["chunks"].push_back(std::move(entry));
  }
  return with_manifest_checksum(fields.dump(2));
}

ChunkManifest parse_chunk_manifest(const std::string& text, const std::string& path) {
  const JsonDocument document = JsonDocument::parse(text, path, kUse);
  const JsonPart fields = document.root();
  const std::int64_t version = fields.member("format_version").number();
  if (version != kChunkFormat) {
    const FileUse other{.operation = kUse.operation,
                        .fix = "use the version of strata that wrote it"};
    other.refuse(path, "the chunk file has another format version", std::to_string(kChunkFormat),
                 std::to_string(version));
  }
  require_manifest_checksum(text, path, kUse);
  for (const auto& [name, value] :
       {std::pair("alignment", kDiskAlignment), std::pair("block_bytes", kDiskBlockBytes)})
    if (static_cast<std::size_t>(fields.member(name).number()) != value)
      fields.member(name).refuse(std::to_string(value), fields.member(name).quoted());
  ChunkManifest manifest{.step = fields.member("step").number(),
                         .user_text = fields.member("user_text").text(),
                         .chunks = {}};
  if (const JsonPart step = fields.member("previous_step"); !step.is_null()) {
    manifest.previous_step = step.number();
    manifest.previous_text = fields.member("previous_text").text();
  }
  const std::vector<JsonPart> entries = fields.member("chunks").elements();
  std::vector<std::int64_t> chunk_bytes;
  for (const JsonPart& entry : entries)
    chunk_bytes.push_back(entry.member("bytes").number(1, INT64_MAX / 4));
  manifest.chunks = lay_out_chunks(chunk_bytes);
  for (std::size_t i = 0; i < entries.size(); ++i)
    manifest.chunks[i] = read_entry(entries[i], manifest.chunks[i]);
  return manifest;
}

}  // namespace strata
