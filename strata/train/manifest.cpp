#include "strata/train/manifest.h"

#include <nlohmann/json.hpp>
#include <stdexcept>
#include <utility>

#include "strata/base/checksum.h"
#include "strata/base/errors.h"

namespace strata {
namespace {

using nlohmann::ordered_json;

constexpr const char* kChecksumField = "manifest_checksum";

std::string dump(const ordered_json& fields) {
  return fields.dump(2, ' ', false, ordered_json::error_handler_t::replace);
}

std::string checksum_of(const ordered_json& fields) {
  const std::string text = dump(fields);
  return checksum_text(checksum(std::as_bytes(std::span(text))));
}

[[noreturn]] void refuse(const std::string& path, const std::string& what,
                         const std::string& expected, const std::string& got,
                         const std::string& fix = "resume from another checkpoint") {
  throw UserError({"train.open_checkpoint", path, what, expected, got, fix});
}

Manifest read_fields(const ordered_json& fields) {
  Manifest manifest{.step = fields.at("step"),
                    .samples_seen = fields.at("samples_seen"),
                    .threads_per_rank = fields.at("threads_per_rank"),
                    .strata_version = fields.at("strata_version"),
                    .recipe = fields.at("recipe")};
  for (const ordered_json& file : fields.at("files")) {
    ChunkDigest digest{.bytes = file.at("bytes"), .checksums = {}};
    for (const std::string digits : file.at("checksums"))
      digest.checksums.push_back(std::stoull(digits, nullptr, 16));
    if ((digest.bytes + kChunkBytes - 1) / kChunkBytes !=
        static_cast<std::int64_t>(digest.checksums.size()))
      throw std::invalid_argument("a file with another number of checksums");
    manifest.files.push_back({.name = file.at("name"), .digest = std::move(digest)});
  }
  return manifest;
}

}  // namespace

std::string write_manifest(const Manifest& manifest) {
  ordered_json fields = {{"format_version", kCheckpointFormat},
                         {"step", manifest.step},
                         {"samples_seen", manifest.samples_seen},
                         {"threads_per_rank", manifest.threads_per_rank},
                         {"strata_version", manifest.strata_version},
                         {"recipe", manifest.recipe},
                         {"files", ordered_json::array()}};
  for (const auto& [name, digest] : manifest.files) {
    std::vector<std::string> checksums;
    for (const std::uint64_t sum : digest.checksums) checksums.push_back(checksum_text(sum));
    fields["files"].push_back(
        {{"name", name}, {"bytes", digest.bytes}, {"checksums", std::move(checksums)}});
  }
  // Of what a reader will parse: text that is no UTF-8 was replaced.
  fields = ordered_json::parse(dump(fields));
  const std::string sum = checksum_of(fields);
  fields[kChecksumField] = sum;
  return dump(fields) + "\n";
}

Manifest parse_manifest(const std::string& text, const std::string& path) {
  ordered_json fields = ordered_json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!fields.is_object()) refuse(path, "the manifest is no JSON object", "{...}", "other bytes");
  try {
    const int version = fields.at("format_version");
    if (version != kCheckpointFormat) {
      refuse(path, "the checkpoint has another format version", std::to_string(kCheckpointFormat),
             std::to_string(version), "use the version of strata that wrote it");
    }
    const std::string expected = fields.at(kChecksumField);
    fields.erase(kChecksumField);
    const std::string got = checksum_of(fields);
    if (got != expected) {
      refuse(path, "the manifest is damaged: its checksum is another", expected, got);
    }
    return read_fields(fields);
  } catch (const nlohmann::json::exception& error) {
    refuse(path, "the manifest is damaged", "the fields of a checkpoint", error.what());
  } catch (const std::logic_error& error) {  // std::stoull
    refuse(path, "the manifest is damaged", "a checksum of 16 digits for every 4 MiB of a file",
           error.what());
  }
}

}  // namespace strata
